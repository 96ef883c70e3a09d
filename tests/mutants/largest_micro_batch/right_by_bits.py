"""Sets bits from the highest down."""

def largest_micro_batch(bytes_needed, gpu_bytes):
    n = 0
    for bit in reversed(range(24)):
        if bytes_needed(n + (1 << bit)) <= gpu_bytes:
            n += 1 << bit
    return n
