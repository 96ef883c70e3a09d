"""Never returns 0.

says: answer is 0
"""

def largest_micro_batch(bytes_needed, gpu_bytes):
    low, high = 1, 2
    while bytes_needed(high) <= gpu_bytes:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        if bytes_needed(middle) <= gpu_bytes:
            low = middle
        else:
            high = middle
    return low
