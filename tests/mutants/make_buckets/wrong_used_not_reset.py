"""The count is not set back.

says: are enough
"""

def make_buckets(parameters, cap_bytes):
    buckets, bucket, used = [], [], 0
    for parameter in reversed(list(parameters)):
        size = parameter.numel() * parameter.element_size()
        if bucket and (used + size > cap_bytes or parameter.dtype != bucket[-1].dtype):
            buckets.append(bucket)
            bucket = []
        bucket.append(parameter)
        used += size
    if bucket:
        buckets.append(bucket)
    return buckets
