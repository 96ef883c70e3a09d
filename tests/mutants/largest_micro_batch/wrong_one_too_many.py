"""Returns the first that does not fit.

says: overflows
"""

def largest_micro_batch(bytes_needed, gpu_bytes):
    low, high = 0, 1
    while bytes_needed(high) <= gpu_bytes:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        if bytes_needed(middle) <= gpu_bytes:
            low = middle
        else:
            high = middle
    return high
