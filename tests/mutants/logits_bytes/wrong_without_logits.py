"""The bf16 logits are taken as freed.

says: still referenced
"""

def logits_bytes(vocab_size, micro_batch, seq_len):
    return 12 * vocab_size * micro_batch * seq_len
