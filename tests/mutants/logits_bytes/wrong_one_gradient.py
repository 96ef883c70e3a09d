"""One gradient too few.

says: are three
"""

def logits_bytes(vocab_size, micro_batch, seq_len):
    return 10 * vocab_size * micro_batch * seq_len
