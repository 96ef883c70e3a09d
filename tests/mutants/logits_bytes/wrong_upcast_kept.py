"""The fp32 copy of the logits is kept, too.

says: copy of the logits is gone
"""

def logits_bytes(vocab_size, micro_batch, seq_len):
    return 18 * vocab_size * micro_batch * seq_len
