"""Which lines are the learner's own, and how to show one: the cell it stands in, its number, its text."""

from __future__ import annotations

import functools
import linecache
import os
import sys
import sysconfig
from types import FrameType, TracebackType

from rankzero.observe.observation import Frame

_PACKAGES = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_LIBRARIES = tuple(
    {
        os.path.join(path, "")
        for path in (
            _PACKAGES,
            os.path.join(os.path.dirname(_PACKAGES), "autograder"),
            os.path.dirname(os.__file__),
            *(sysconfig.get_paths().get(name, "") for name in ("stdlib", "purelib", "platlib")),
        )
        if path
    }
)
#: Titles that a process was told for files, such as "In[5]" for a notebook cell.
_titles: dict[str, str] = {}


@functools.lru_cache(maxsize=4096)
def is_learners(file: str) -> bool:
    """Whether a file is the learner's: not the standard library's, not a package's, not ours."""
    return not (file.startswith(_LIBRARIES) or file.startswith("<frozen") or file in ("<string>", "<stdin>", "???"))


def frame_of(start: FrameType | None) -> Frame | None:
    """The innermost frame of the learner's code, from ``start`` outwards."""
    frame = start
    while frame is not None:
        if is_learners(frame.f_code.co_filename):
            return Frame(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)
        frame = frame.f_back
    return None


def learners_frames(traceback: TracebackType | None) -> list[Frame]:
    """The learner's frames of a traceback, outermost first."""
    frames = []
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if is_learners(code.co_filename):
            frames.append(Frame(code.co_filename, traceback.tb_lineno, code.co_name))
        traceback = traceback.tb_next
    return frames


def title(file: str) -> str:
    """How a person calls the file: "In[5]" for a notebook cell, else its base name."""
    if file in _titles:
        return _titles[file]
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    name = shell.compile.format_code_name(file) if shell is not None else None
    if name:
        return " ".join(name).removeprefix("Cell ")
    return os.path.basename(file)


def text_of(frame: Frame) -> str:
    """The text of the frame's line, without its indentation; empty if it cannot be had."""
    return linecache.getline(frame.file, frame.line).strip()


def describe(frame: Frame | None) -> str:
    """A place in words: ``In[5], line 7: dist.recv(buffer, src=left)``."""
    if frame is None:
        return ""
    text = text_of(frame)
    return f"{title(frame.file)}, line {frame.line}" + (f": {text}" if text else "")


def cell_sources() -> dict[str, tuple[str, str]]:
    """The notebook cells of this kernel: file name → (title, source). Empty outside IPython."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if shell is None:
        return {}
    return {
        file: (title(file), "".join(entry[2]))
        for file, entry in list(linecache.cache.items())
        if len(entry) > 2 and shell.compile.format_code_name(file)
    }


def remember(sources: dict[str, tuple[str, str]]) -> None:
    """Take over another process's cells, so that their lines can be shown here."""
    for file, (name, text) in sources.items():
        _titles[file] = name
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
