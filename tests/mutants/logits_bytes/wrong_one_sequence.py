"""The micro-batch is forgotten.

says: `micro_batch` is not in it
"""

def logits_bytes(vocab_size, micro_batch, seq_len):
    return 14 * vocab_size * seq_len
