"""One open bucket for each dtype; buckets listed as they were opened."""

def make_buckets(parameters, cap_bytes):
    buckets, open_ones = [], {}
    for p in list(parameters)[::-1]:
        bucket, left = open_ones.get(p.dtype, (None, -1))
        if bucket is None or p.nbytes > left:
            bucket, left = [], cap_bytes
            buckets.append(bucket)
        bucket.append(p)
        open_ones[p.dtype] = (bucket, left - p.nbytes)
    return buckets
