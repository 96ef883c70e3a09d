"""Returns None if none fits.

says: return 0
"""

def largest_micro_batch(bytes_needed, gpu_bytes):
    if bytes_needed(1) > gpu_bytes:
        return None
    low, high = 1, 2
    while bytes_needed(high) <= gpu_bytes:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if bytes_needed(middle) <= gpu_bytes else (low, middle)
    return low
