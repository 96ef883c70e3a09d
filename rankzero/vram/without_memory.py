"""What lets real models be built and run on tensors without memory, where code would look at values."""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Callable, Iterator

import torch
from torch import nn


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Building a model without what the libraries say to those who load one: special tokens, kernels, new names."""
    loggers = [logging.getLogger(name) for name in ("bitsandbytes", "transformers")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


@contextlib.contextmanager
def plain_conversion(fake: bool) -> Iterator[None]:
    """``Module.to`` by setting ``.data``: torch swaps tensors without memory, which fails once they are referred to."""
    if not fake:
        yield
        return
    usual = nn.Module._apply

    def apply(self: nn.Module, fn: Callable, recurse: bool = True) -> nn.Module:
        for child in self.children() if recurse else ():
            child._apply(fn)
        for parameter in self._parameters.values():
            if parameter is not None:
                with torch.no_grad():
                    new = fn(parameter)
                if new is not parameter:
                    parameter.data = new
        for key, buffer in self._buffers.items():
            if buffer is not None:
                self._buffers[key] = fn(buffer)
        return self

    nn.Module._apply = apply
    try:
        yield
    finally:
        nn.Module._apply = usual


@contextlib.contextmanager
def unfilled() -> Iterator[None]:
    """Weights that nobody draws: drawing takes time, and some draw again until all values are within bounds."""
    usual = nn.init._no_grad_trunc_normal_
    nn.init._no_grad_trunc_normal_ = lambda tensor, *_, **__: tensor
    try:
        with contextlib.ExitStack() as stack:
            with contextlib.suppress(ModuleNotFoundError):
                from transformers.initialization import no_init_weights

                stack.enter_context(no_init_weights())
            yield
    finally:
        nn.init._no_grad_trunc_normal_ = usual


@contextlib.contextmanager
def values_unread() -> Iterator[None]:
    """transformers looks at values to skip masks, and skips no mask where it finds a tensor without memory.

    It is kept from finding out: each such look is answered as for one whole, unpadded sequence per row.
    """
    try:
        from transformers.utils import import_utils
    except ModuleNotFoundError:
        yield
        return
    changes = [(import_utils, "is_fake_tensor", lambda _: False)]
    with contextlib.suppress(ImportError):
        from transformers.integrations import moe

        # Without memory, torch multiplies by groups in bf16 only; the fall-back takes the same bytes.
        changes.append((moe, "_can_use_grouped_mm", lambda _, weight, __: weight.dtype is torch.bfloat16))
    usual = [(where, name, getattr(where, name)) for where, name, _ in changes if hasattr(where, name)]
    for where, name, new in changes:
        setattr(where, name, new)
    try:
        yield
    finally:
        for where, name, old in usual:
            setattr(where, name, old)
