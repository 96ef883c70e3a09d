"""The last position is left out.

says: all seq_len positions | expected
"""

def logits_bytes(vocab_size, micro_batch, seq_len):
    return 14 * vocab_size * micro_batch * (seq_len - 1)
