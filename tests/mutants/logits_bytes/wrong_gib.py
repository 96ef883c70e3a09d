"""In GiB.

says: gib
"""

def logits_bytes(vocab_size, micro_batch, seq_len):
    return 14 * vocab_size * micro_batch * seq_len / 2**30
