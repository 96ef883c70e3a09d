"""Draws a line through two samples and trusts it.

says: does not grow evenly | overflows
"""

def largest_micro_batch(bytes_needed, gpu_bytes):
    one, two = bytes_needed(1), bytes_needed(2)
    if one > gpu_bytes:
        return 0
    return 1 + (gpu_bytes - one) // max(1, two - one)
