"""The parameter that does not fit is lost.

says: no longer fits lost
"""

def make_buckets(parameters, cap_bytes):
    buckets, bucket, used = [], [], 0
    for parameter in reversed(list(parameters)):
        size = parameter.numel() * parameter.element_size()
        if bucket and (used + size > cap_bytes or parameter.dtype != bucket[-1].dtype):
            buckets.append(bucket)
            bucket, used = [], 0
            continue
        bucket.append(parameter)
        used += size
    if bucket:
        buckets.append(bucket)
    return buckets
