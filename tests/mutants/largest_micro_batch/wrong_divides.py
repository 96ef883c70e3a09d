"""Divides by the need of one sample.

says: room for
"""

def largest_micro_batch(bytes_needed, gpu_bytes):
    return gpu_bytes // bytes_needed(1)
