"""The bf16 logits alone.

says: bf16 logits alone
"""

def logits_bytes(vocab_size, micro_batch, seq_len):
    return 2 * vocab_size * micro_batch * seq_len
