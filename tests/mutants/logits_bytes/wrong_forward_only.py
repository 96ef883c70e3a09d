"""Logits and log-probabilities, no backward.

says: backward is missing
"""

def logits_bytes(vocab_size, micro_batch, seq_len):
    return 6 * vocab_size * micro_batch * seq_len
