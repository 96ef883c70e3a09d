"""Any earlier bucket with room takes it, not only the last.

says: neither that of the model
"""

def make_buckets(parameters, cap_bytes):
    buckets, bucket, used = [], [], 0
    for parameter in reversed(list(parameters)):
        size = parameter.numel() * parameter.element_size()
        if bucket and (used + size > cap_bytes or parameter.dtype != bucket[-1].dtype):
            buckets.append(bucket)
            bucket, used = [], 0
        for earlier in buckets:
            if earlier[0].dtype == parameter.dtype and sum(p.nbytes for p in earlier) + size <= cap_bytes:
                earlier.append(parameter)
                break
        else:
            bucket.append(parameter)
            used += size
    if bucket:
        buckets.append(bucket)
    return buckets
