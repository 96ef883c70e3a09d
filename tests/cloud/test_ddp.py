"""cloud/ddp.py under torchrun, on gloo: with a learner's file, with a notebook, and with a wrong answer."""

import os
import subprocess
import sys

import pytest

from autograder.build import built_path
from autograder.lessons import ROOT, answer_sources

WAYS = ["your HandDDP", "DistributedDataParallel"]


def run(tmp_path, answers, *more):
    """Two ranks, as `torchrun` starts them, with nothing of this repository to import."""
    script = tmp_path / "ddp.py"
    script.write_text((ROOT / "cloud" / "ddp.py").read_text(encoding="utf-8"), encoding="utf-8")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(script)]
    command += ["--answers", str(answers), "--width", "160", "--blocks", "3", "--steps", "3", *more]
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        command, cwd=tmp_path, env={**environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=120
    )
    ways = {line[:28].strip(): line[28:].split() for line in done.stdout.splitlines() if line[:28].strip() in WAYS}
    return done, ways


def write(path, *changes):
    """A learner's file with the reference answers, changed."""
    sources = answer_sources("05_ddp")
    text = "\n\n".join(sources[one] for one in ("broadcast_state", "make_buckets", "hand_ddp"))
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path.write_text(text, encoding="utf-8")
    return path


def test_a_learners_file_trains_and_is_compared(tmp_path):
    done, ways = run(tmp_path, write(tmp_path / "my_ddp.py"), "--micro-batches", "2")
    assert done.returncode == 0, done.stderr[-3000:]
    assert list(ways) == WAYS
    assert "2 ranks, gloo, fp32" in done.stdout
    (_, calls, handed_in, sent, loss), (*_, their_sent, their_loss) = ways.values()
    assert (calls, handed_in, sent) == ("1", "0.3", "0.3")  # 3 · (160 · 160 + 160) · 4 bytes; at 2 ranks once
    assert their_sent == sent
    assert float(loss) == pytest.approx(float(their_loss), rel=1e-5)


@pytest.mark.slow
def test_a_notebook_will_do_and_so_will_bf16(tmp_path):
    notebook = ROOT / built_path("solutions", "05_ddp")
    done, ways = run(tmp_path, notebook, "--precision", "bf16")
    assert done.returncode == 0, done.stderr[-3000:]
    assert list(ways) == WAYS


@pytest.mark.slow
def test_another_loss_is_told(tmp_path):
    answers = write(tmp_path / "my_ddp.py", ("dist.get_world_size(), out=place", "1, out=place"))
    done, ways = run(tmp_path, answers)
    assert list(ways) == WAYS
    assert done.returncode != 0
    assert "another loss than torch's" in done.stderr


@pytest.mark.slow
def test_an_unfinished_notebook_is_told(tmp_path):
    done, _ = run(tmp_path, ROOT / built_path("notebooks", "05_ddp"))
    assert done.returncode != 0
    assert "defines no HandDDP" in done.stderr
