"""bf16 logits, and three fp32 tensors."""

def logits_bytes(vocab_size: int, micro_batch: int, seq_len: int) -> int:
    logits = vocab_size * micro_batch * seq_len
    bf16, log_probabilities, from_nll, gradient = 2, 4, 4, 4
    return (bf16 + log_probabilities + from_nll + gradient) * logits
