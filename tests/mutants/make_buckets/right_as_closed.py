"""One open bucket for each dtype; buckets listed as they are closed."""

def make_buckets(parameters, cap_bytes):
    done, fill = [], {}
    for p in reversed([*parameters]):
        bucket = fill.setdefault(p.dtype, [])
        if bucket and sum(q.nbytes for q in bucket) + p.nbytes > cap_bytes:
            done.append(bucket)
            bucket = fill[p.dtype] = []
        bucket.append(p)
    return done + list(fill.values())
