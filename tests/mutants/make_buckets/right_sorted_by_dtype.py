"""First all of one dtype, then of the next; tuples."""

from itertools import groupby


def make_buckets(parameters, cap_bytes):
    backwards = sorted(reversed(list(parameters)), key=lambda p: str(p.dtype))
    out = []
    for _, group in groupby(backwards, key=lambda p: p.dtype):
        total = cap_bytes + 1
        for p in group:
            total += p.nbytes
            if total > cap_bytes:
                out.append(())
                total = p.nbytes
            out[-1] += (p,)
    return out
