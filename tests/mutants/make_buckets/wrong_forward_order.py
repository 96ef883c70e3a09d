"""Parameters in the model's order.

says: in the order of the model
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
    return buckets
