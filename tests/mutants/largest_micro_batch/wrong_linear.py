"""Tries one after the other.

says: times
"""

def largest_micro_batch(bytes_needed, gpu_bytes):
    n = 0
    while bytes_needed(n + 1) <= gpu_bytes:
        n += 1
    return n
