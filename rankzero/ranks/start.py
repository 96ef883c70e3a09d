"""What differs between machines: how processes start, die with their owner, and find the loopback."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import tempfile

#: Ranks beyond this are refused: each is a process, and the message that starts them carries three files each.
MAX_RANKS = 64


def warm_fork() -> bool:
    """Whether ranks are forked from a warm server (Linux) or started one by one (macOS).

    Forking a process that has loaded Apple's frameworks is not safe, hence the difference. The environment
    variable ``RANKZERO_START=spawn`` asks for the slow way, to test it anywhere.
    """
    return sys.platform == "linux" and os.environ.get("RANKZERO_START") != "spawn"


def refuse_unknown_platforms() -> None:
    """Raise on native Windows, which has neither of the two ways.

    Raises:
        RuntimeError: this is native Windows.
    """
    if os.name != "posix":
        raise RuntimeError("ranks need Linux or macOS; on Windows open the course inside WSL 2, where it is Linux")


def rank_environment() -> dict[str, str]:
    """Environment variables for ranks: gloo on the loopback, no C++ warnings among the learner's output."""
    return {
        "GLOO_SOCKET_IFNAME": "lo0" if sys.platform == "darwin" else "lo",
        "TORCH_CPP_LOG_LEVEL": os.environ.get("TORCH_CPP_LOG_LEVEL", "ERROR"),
        "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
    }


def die_with_parent() -> None:
    """Ask the kernel to kill this process when its parent dies. Only Linux can."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def adopt_orphans() -> None:
    """Make this process the parent of its descendants' orphans, so that none escapes. Only Linux can."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            ctypes.CDLL(None).prctl(36, 1)  # PR_SET_CHILD_SUBREAPER


def children_of(pid: int) -> list[int]:
    """The direct children of a process, by ``/proc``; empty where there is none."""
    children: list[int] = []
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{task}/children") as file:
                children += map(int, file.read().split())
    return children


def anonymous_file(name: str) -> int:
    """A file descriptor, appending, of a file that has no name and goes with its last user."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create(name)
    else:
        fd, path = tempfile.mkstemp(prefix=name)
        os.unlink(path)
    import fcntl

    fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_APPEND)
    return fd


def gpu_count() -> int:
    """How many NVIDIA GPUs torch may use here, found without starting CUDA in this process."""
    if sys.platform != "linux" or not os.path.exists("/dev/nvidiactl"):
        return 0
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    import torch

    return torch.cuda.device_count()
