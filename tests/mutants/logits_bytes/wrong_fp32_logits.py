"""Logits in fp32.

says: not fp32
"""

def logits_bytes(vocab_size, micro_batch, seq_len):
    return 16 * vocab_size * micro_batch * seq_len
