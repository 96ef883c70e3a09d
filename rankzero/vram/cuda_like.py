"""What CUDA's kernels save and allocate, where a CPU's do something else: attention, autocast, NF4 matrices."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F

#: torch.autocast on CUDA computes these in fp32; on a CPU it does not.
_FP32_UNDER_AUTOCAST = ("layer_norm", "group_norm", "softmax", "log_softmax", "cross_entropy", "nll_loss", "mse_loss")
_cpu_attention = F.scaled_dot_product_attention
_cpu_dropout = F.dropout


@contextlib.contextmanager
def cuda_like() -> Iterator[None]:
    """Calls go where they would on a GPU: attention to the kernel that CUDA chooses, autocast by CUDA's lists.

    The functions in ``torch.nn.functional`` are replaced meanwhile: a function mode would not see what checkpointing
    computes anew, since autograd's engine takes such modes off.
    """
    changes: dict[str, Callable] = {name: _fp32_under_autocast(getattr(F, name)) for name in _FP32_UNDER_AUTOCAST}
    changes |= {"scaled_dot_product_attention": _attention, "dropout": _dropout}
    usual = {name: getattr(F, name) for name in changes}
    for name, function in changes.items():
        setattr(F, name, function)
    try:
        yield
    finally:
        for name, function in usual.items():
            setattr(F, name, function)


def _fp32_under_autocast(function: Callable) -> Callable:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if torch.is_autocast_enabled("cpu") and not kwargs.get("dtype"):
            args = tuple(map(_to_fp32, args))
        return function(*args, **kwargs)

    return call


def _to_fp32(value: Any) -> Any:
    half = isinstance(value, torch.Tensor) and value.dtype in (torch.bfloat16, torch.float16)
    return value.float() if half else value


def _dropout(x: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> torch.Tensor:
    """CUDA's dropout keeps a mask of one byte per element, a CPU's one of the input's dtype."""
    if inplace or not training or not 0 < p < 1:
        return _cpu_dropout(x, p, training, inplace)
    return torch.native_dropout(x, p, True)[0]


def _attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """Scaled dot-product attention by the kernel that CUDA would take.

    Flash attention takes half precision without a mask, the memory-efficient kernel masks and fp32 without grouped
    heads; the rest is written out (``math``), with all scores in memory.
    """
    if torch.is_autocast_enabled("cpu"):
        dtype = torch.get_autocast_dtype("cpu")
        query, key, value = query.to(dtype), key.to(dtype), value.to(dtype)
        if attn_mask is not None and attn_mask.is_floating_point():
            attn_mask = attn_mask.to(dtype)
    half = query.dtype in (torch.bfloat16, torch.float16)
    if half and attn_mask is None and query.shape[-1] <= 256 and query.shape[-1] == value.shape[-1]:
        return _Flash.apply(query, key, value, None)
    if key.shape[1] == query.shape[1] and not (attn_mask is not None and attn_mask.requires_grad):
        return _Flash.apply(query, key, value, attn_mask)
    from torch.nn.attention import SDPBackend, sdpa_kernel

    with sdpa_kernel(SDPBackend.MATH):
        return _cpu_attention(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)


class _Flash(torch.autograd.Function):
    """The bytes of flash attention: it saves its inputs, its output and one fp32 number per head and token."""

    @staticmethod
    def forward(ctx: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: Any) -> torch.Tensor:
        batch, heads, length, _ = query.shape
        with torch.enable_grad():  # so that the meter takes what is computed anew in backward for activations
            out = query.new_empty((batch, length, heads, value.shape[-1])).transpose(1, 2)
            log_sum = query.new_empty((batch, heads, length), dtype=torch.float32)
        ctx.save_for_backward(query, key, value, out, log_sum, mask)
        return out

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple:
        query, key, value, _, _, _ = ctx.saved_tensors
        batch, heads, length, size = query.shape
        dq, dk, dv = (torch.empty_like(tensor) for tensor in (query, key, value))
        # Within the kernel: the query's gradient in fp32, each row's fp32 sum of gradient times output, and where
        # heads share keys and values, these gradients for each head.
        inside = [
            query.new_empty((batch, heads, length, size), dtype=torch.float32),
            query.new_empty((batch, heads, length), dtype=torch.float32),
        ]
        if key.shape[1] != heads:
            inside += [key.new_empty((batch, heads, key.shape[2], size)) for _ in range(2)]
        del inside
        return dq, dk, dv, None


def flash(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Flash attention, whatever the dtype: the flash-attn package casts to half precision itself."""
    return _Flash.apply(query, key, value, None)


def nf4_linear(weight: torch.Tensor, bias: Any, double: bool, compute_dtype: torch.dtype) -> torch.nn.Module:
    """A ``bitsandbytes`` Linear4bit for a weight [out, in], packed but without values.

    bitsandbytes' own layer cannot hold tensors without memory: its parameter class takes their marks off. This one
    is of its class, so that peft treats it alike, and computes as ``MatMul4Bit`` does on CUDA: forward and backward
    each dequantize the whole matrix to the compute dtype and let go of it after the product.
    """
    return _linear4bit_class()(weight, bias, double, compute_dtype)


def _linear4bit_class() -> type:
    from bitsandbytes.nn import Linear4bit

    class PackedLinear(Linear4bit):
        def __init__(self, weight: torch.Tensor, bias: Any, double: bool, compute_dtype: torch.dtype) -> None:
            torch.nn.Module.__init__(self)
            count = weight.numel()
            blocks = -(-count // 64)
            make = weight.new_empty
            self.out_features, self.in_features = weight.shape
            self.compute_dtype = compute_dtype
            self.weight = torch.nn.Parameter(make(((count + 1) // 2, 1), dtype=torch.uint8), requires_grad=False)
            self.weight.compress_statistics, self.weight.quant_type = double, "nf4"
            self.bias = bias
            scales = {"code": make(16, dtype=torch.float32)}
            if double:
                scales["absmax"] = make(blocks, dtype=torch.uint8)
                scales["absmax2"] = make(-(-blocks // 256), dtype=torch.float32)
                scales["code2"] = make(256, dtype=torch.float32)
                scales["offset"] = make((), dtype=torch.float32)
            else:
                scales["absmax"] = make(blocks, dtype=torch.float32)
            self.nf4_scales = scales

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            given = x.dtype
            x = x.to(self.compute_dtype)
            bias = None if self.bias is None else self.bias.to(self.compute_dtype)
            return _MatMul4Bit.apply(x, self.weight, bias, self.out_features, self.nf4_scales).to(given)

    return PackedLinear


class _MatMul4Bit(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, packed: torch.Tensor, bias: Any, outputs: int, scales: dict) -> torch.Tensor:
        ctx.packed, ctx.outputs, ctx.inputs, ctx.scales = packed, outputs, x.shape[-1], scales
        weight = _dequantize(packed, outputs, x.shape[-1], x.dtype, scales)
        with torch.enable_grad():  # as above; nothing here requires gradients
            return F.linear(x.detach(), weight, None if bias is None else bias.detach())

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple:
        weight = _dequantize(ctx.packed, ctx.outputs, ctx.inputs, gradient.dtype, ctx.scales)
        return torch.matmul(gradient, weight), None, None, None, None


def _dequantize(packed: torch.Tensor, rows: int, columns: int, dtype: torch.dtype, scales: dict) -> torch.Tensor:
    if "absmax2" in scales:  # the scales come back to fp32 first: their table look-up, then the offset is added
        absmax = torch.empty_like(scales["absmax"], dtype=torch.float32) + scales["offset"]
        out = packed.new_empty((rows, columns), dtype=dtype)
        del absmax
        return out
    return packed.new_empty((rows, columns), dtype=dtype)
