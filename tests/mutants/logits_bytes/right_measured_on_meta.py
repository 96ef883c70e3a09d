"""Adds up the sizes of meta tensors."""

import torch


def logits_bytes(vocab_size, micro_batch, seq_len):
    shape = (micro_batch, seq_len, vocab_size)
    dtypes = [torch.bfloat16, torch.float32, torch.float32, torch.float32]
    return sum(torch.empty(shape, dtype=dtype, device="meta").nbytes for dtype in dtypes)
