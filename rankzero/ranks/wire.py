"""Plain data in a format that cannot execute anything: tensors, numbers, strings, lists, dicts.

What a rank sends to a judge passes here. Decoding never builds an object of a class that the sender
chose: everything that is not plain arrives as :class:`Opaque`, which only knows the name of its type.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

MAX_DEPTH = 16
MAX_ITEMS = 1_000_000


@dataclass(frozen=True)
class Opaque:
    """Stands for an object that is not plain data."""

    type_name: str

    def __repr__(self) -> str:
        return f"<{self.type_name}>"


def encode(value: Any) -> tuple[Any, list[bytes]]:
    """``value`` as a JSON tree and the tensors' bytes, in the order in which the tree names them.

    Subclasses of plain types are opaque, since they can lie about themselves; a tensor is taken by its
    storage, whatever its class overrides.
    """
    import torch

    blobs: list[bytes] = []
    items = 0

    def walk(node: Any, depth: int) -> Any:
        nonlocal items
        items += 1
        kind = type(node)
        if depth > MAX_DEPTH or items > MAX_ITEMS:
            return {"o": f"{kind.__name__} nested too deep or too large"}
        if node is None or kind in (bool, str):
            return {"v": node}
        if kind is int:
            return {"v": node} if node.bit_length() < 4096 else {"o": "int of more than 4,096 bits"}
        if kind is float:
            return {"f": node.hex()}
        if kind in (list, tuple):
            return {"l" if kind is list else "u": [walk(item, depth + 1) for item in node]}
        if kind is range:
            return {"r": [node.start, node.stop, node.step]}
        if kind is dict:
            return {"d": [[walk(key, depth + 1), walk(item, depth + 1)] for key, item in node.items()]}
        if isinstance(node, torch.Tensor):
            return _encode_tensor(node, blobs)
        return {"o": f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")}

    return walk(value, 0), blobs


def _encode_tensor(tensor: Any, blobs: list[bytes]) -> Any:
    import torch

    with torch._C.DisableTorchFunctionSubclass():
        plain = torch.Tensor.as_subclass(torch.Tensor.detach(tensor), torch.Tensor)
        if plain.layout is not torch.strided or plain.device.type == "meta" or plain.is_quantized:
            return {"o": f"torch.Tensor ({plain.layout}, {plain.device.type})"}
        plain = plain.resolve_conj().resolve_neg().cpu().contiguous()
        blobs.append(plain.reshape(-1).view(torch.uint8).numpy().tobytes())
        return {"t": str(plain.dtype).removeprefix("torch."), "s": list(plain.shape), "b": len(blobs) - 1}


def decode(tree: Any, blobs: list[bytes]) -> Any:
    """The value of a tree made by :func:`encode`.

    Raises:
        ValueError: the tree is not such a tree.
    """
    import torch

    def walk(node: Any, depth: int) -> Any:
        if depth > MAX_DEPTH + 1 or not isinstance(node, dict) or not node:
            raise ValueError("not plain data")
        if "v" in node and (node["v"] is None or type(node["v"]) in (bool, str, int)):
            return node["v"]
        if "f" in node:
            return float.fromhex(node["f"])
        if "l" in node:
            return [walk(item, depth + 1) for item in node["l"]]
        if "u" in node:
            return tuple(walk(item, depth + 1) for item in node["u"])
        if "r" in node:
            return range(*map(int, node["r"]))
        if "d" in node:
            return {_hashable(walk(key, depth + 1)): walk(item, depth + 1) for key, item in node["d"]}
        if "t" in node:
            dtype = getattr(torch, str(node["t"]), None)
            if not isinstance(dtype, torch.dtype):
                raise ValueError("not a dtype")
            shape = [int(size) for size in node["s"]]
            flat = (
                torch.frombuffer(bytearray(blobs[int(node["b"])]), dtype=dtype)
                if 0 not in shape
                else torch.empty(0, dtype=dtype)
            )
            return flat.reshape(shape)
        if "o" in node:
            return Opaque(str(node["o"])[:200])
        raise ValueError("not plain data")

    try:
        return walk(tree, 0)
    except (KeyError, IndexError, TypeError, RuntimeError, RecursionError, OverflowError) as error:
        raise ValueError(f"not plain data: {error}") from None


def _hashable(key: Any) -> Any:
    try:
        hash(key)
    except TypeError:
        raise ValueError("a dict's key cannot be hashed") from None
    return key
