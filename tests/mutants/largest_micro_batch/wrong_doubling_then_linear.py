"""Doubles, then goes on one by one.

says: times
"""

def largest_micro_batch(bytes_needed, gpu_bytes):
    n = 1
    while bytes_needed(2 * n) <= gpu_bytes:
        n *= 2
    while bytes_needed(n + 1) <= gpu_bytes:
        n += 1
    return n if bytes_needed(n) <= gpu_bytes else 0
