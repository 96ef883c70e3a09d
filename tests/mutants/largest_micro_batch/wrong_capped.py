"""Never looks beyond 64.

says: room for | power of two
"""

def largest_micro_batch(bytes_needed, gpu_bytes):
    best = 0
    for n in (1, 2, 4, 8, 16, 32, 64):
        if bytes_needed(n) <= gpu_bytes:
            best = n
    return best
