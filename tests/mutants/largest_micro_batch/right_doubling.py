"""Doubles, then halves the interval."""

def largest_micro_batch(bytes_needed, gpu_bytes):
    if bytes_needed(1) > gpu_bytes:
        return 0
    fits, too_many = 1, 2
    while bytes_needed(too_many) <= gpu_bytes:
        fits, too_many = too_many, 2 * too_many
    while too_many - fits > 1:
        middle = (fits + too_many) // 2
        if bytes_needed(middle) <= gpu_bytes:
            fits = middle
        else:
            too_many = middle
    return fits
