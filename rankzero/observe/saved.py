"""What autograd keeps of a forward: each storage, where it comes from, and its bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module as hooks


@dataclass(frozen=True)
class Saved:
    """One storage that autograd keeps.

    Attributes:
        source: the operator that made the tensor, such as "silu"; "input" for one that was handed in, "no gradient"
            for one that autograd does not follow.
        inside: the module at work when it was first kept, by its path, such as "mlp.down_proj"; "" outside of all.
        shape, dtype: of the tensor as it was first kept, the dtype as "bfloat16".
        bytes: of the whole storage.
    """

    source: str
    inside: str
    shape: tuple[int, ...]
    dtype: str
    bytes: int


class SavedTensors:
    """The storages that autograd keeps for backward, in the order in which they were first kept.

    Attributes:
        result: what the function returned; as long as it lives, so does what is kept.
        total_bytes: of all storages together.
        left_out_bytes: bytes of parameters and buffers that are kept too, but would be alive anyway.
    """

    def __init__(self, rows: list[Saved], left_out_bytes: int, result: Any):
        self._rows = rows
        self.result = result
        self.left_out_bytes = left_out_bytes
        self.total_bytes = sum(row.bytes for row in rows)

    def __iter__(self) -> Iterator[Saved]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def __str__(self) -> str:
        lines = [["kept inside", "made by", "shape", "dtype", "bytes"], *map(_words, self._rows)]
        widths = [max(len(line[column]) for line in lines) for column in range(5)]
        table = [
            "  ".join(
                [*(word.ljust(width) for word, width in zip(line[:4], widths, strict=False)), line[4].rjust(widths[4])]
            )
            for line in lines
        ]
        return "\n".join([*table, self._last_line()])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{name}</th>" for name in ("kept inside", "made by", "shape", "dtype", "bytes"))
        body = "".join(
            "<tr>" + "".join(f"<td>{escape(word)}</td>" for word in _words(row)) + "</tr>" for row in self._rows
        )
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table><p>{escape(self._last_line())}</p>"

    def _last_line(self) -> str:
        storages = "1 storage" if len(self) == 1 else f"{len(self)} storages"
        return f"{storages}, {self.total_bytes:,} bytes; parameters and buffers left out: {self.left_out_bytes:,} bytes"


def saved_tensors(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> SavedTensors:
    """Call ``fn(*args, **kwargs)`` and list the storages that autograd keeps of it for backward.

    Each storage is listed once, however many operators keep it, and whatever views of it they keep. Parameters
    and buffers of the modules at work are left out: they are alive anyway. Inputs are listed if they are kept.

    Args:
        fn: a module, or any function of tensors.
    """
    kept: dict[int, tuple[Saved, Tensor]] = {}
    inputs = {_key(value) for value in (*args, *kwargs.values()) if isinstance(value, Tensor)}
    with _modules(fn) as (path, own):

        def pack(tensor: Tensor) -> Tensor:
            key = _key(tensor)
            if key not in kept:
                row = Saved(
                    source="input" if key in inputs else _source(tensor),
                    inside=path[-1] if path else "",
                    shape=tuple(tensor.shape),
                    dtype=str(tensor.dtype).removeprefix("torch."),
                    bytes=tensor.untyped_storage().nbytes(),
                )
                # The tensor stays here until the end, so that no other storage gets its address meanwhile.
                kept[key] = (row, tensor.detach())
                if isinstance(tensor, nn.Parameter):
                    own.add(key)
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            result = fn(*args, **kwargs)
    rows = [row for key, (row, _) in kept.items() if key not in own]
    left_out = sum(row.bytes for key, (row, _) in kept.items() if key in own)
    return SavedTensors(rows, left_out, result)


@contextmanager
def _modules(fn: Callable[..., Any]):
    """The path of the modules at work, innermost last, and the storages of their parameters and buffers."""
    path: list[str] = []
    own: set[int] = set()
    names = {child: name for name, child in fn.named_modules()} if isinstance(fn, nn.Module) else {}

    def enter(module: nn.Module, _inputs: Any) -> None:
        path.append(names.get(module, type(module).__name__))
        for tensor in (*module.parameters(recurse=False), *module.buffers(recurse=False)):
            own.add(_key(tensor))

    def leave(_module: nn.Module, _inputs: Any, _output: Any) -> None:
        if path:
            path.pop()

    handles = [
        hooks.register_module_forward_pre_hook(enter),
        hooks.register_module_forward_hook(leave, always_call=True),
    ]
    try:
        yield path, own
    finally:
        for handle in handles:
            handle.remove()


def _key(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata


def _source(tensor: Tensor) -> str:
    """The operator that made a tensor, from the name of its node: "SiluBackward0" gives "silu"."""
    while tensor._is_view() and tensor._base is not None:
        tensor = tensor._base  # a view shows only how it was cut; its base says what it is
    if tensor.grad_fn is None:
        return "no gradient"
    name = tensor.grad_fn.name().rpartition("::")[2].rstrip("0123456789").removesuffix("Backward")
    for other, usual in (("UnsafeView", "linear"), ("ToCopy", "cast")):
        if name == other:
            return usual
    words = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")
    return "attention" if words.startswith("scaled_dot_product") else words


def _words(row: Saved) -> list[str]:
    shape = " × ".join(map(str, row.shape)) or "scalar"
    return [row.inside, row.source, shape, row.dtype, f"{row.bytes:,}"]
