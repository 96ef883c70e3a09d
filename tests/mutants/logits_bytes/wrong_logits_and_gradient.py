"""Two fp32 tensors.

says: two fp32 gradients
"""

def logits_bytes(vocab_size, micro_batch, seq_len):
    return 8 * vocab_size * micro_batch * seq_len
