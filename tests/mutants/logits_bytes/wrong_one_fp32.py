"""One fp32 tensor.

says: one fp32 copy alone
"""

def logits_bytes(vocab_size, micro_batch, seq_len):
    return 4 * vocab_size * micro_batch * seq_len
