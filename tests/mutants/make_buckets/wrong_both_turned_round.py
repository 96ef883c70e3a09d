"""Filled from the front, then buckets and contents turned round.

says: are enough
"""

def make_buckets(parameters, cap_bytes):
    buckets, bucket, used = [], [], 0
    for parameter in list(parameters):
        size = parameter.numel() * parameter.element_size()
        if bucket and (used + size > cap_bytes or parameter.dtype != bucket[-1].dtype):
            buckets.append(bucket)
            bucket, used = [], 0
        bucket.append(parameter)
        used += size
    if bucket:
        buckets.append(bucket)
    return [bucket[::-1] for bucket in buckets[::-1]]
