"""Stops at the last power of two.

says: power of two
"""

def largest_micro_batch(bytes_needed, gpu_bytes):
    n = 0
    while bytes_needed(max(1, 2 * n)) <= gpu_bytes:
        n = max(1, 2 * n)
    return n
