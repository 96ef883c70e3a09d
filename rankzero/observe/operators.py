"""Which dispatcher operators are messages, where their arguments stand, and what they cost on the wire."""

from __future__ import annotations

#: operator → (kind, place of the tensors that the rank hands in, place of the group, place of peer or root)
_C10D = {
    "send": ("send", 0, 1, 2),
    "recv_": ("recv", 0, 1, 2),
    "recv_any_source_": ("recv", 0, 1, None),
    "allreduce_": ("all_reduce", 0, 1, None),
    "allreduce_coalesced_": ("all_reduce", 0, 1, None),
    "broadcast_": ("broadcast", 0, 1, 2),
    "reduce_": ("reduce", 0, 1, 3),
    "allgather_": ("all_gather", 1, 2, None),
    "_allgather_base_": ("all_gather", 1, 2, None),
    "allgather_coalesced_": ("all_gather", 1, 2, None),
    "allgather_into_tensor_coalesced_": ("all_gather", 1, 2, None),
    "reduce_scatter_": ("reduce_scatter", 1, 2, None),
    "_reduce_scatter_base_": ("reduce_scatter", 1, 2, None),
    "reduce_scatter_tensor_coalesced_": ("reduce_scatter", 1, 2, None),
    "gather_": ("gather", 1, 2, 3),
    "scatter_": ("scatter", 1, 2, 3),
    "alltoall_": ("all_to_all", 1, 2, None),
    "alltoall_base_": ("all_to_all", 1, 2, None),
    "barrier": ("barrier", None, 1, None),
    "monitored_barrier_": ("barrier", None, 1, None),
}
#: the same for functional collectives; their group comes as a name
_FUNCTIONAL = {
    "all_reduce": ("all_reduce", 0, 2, None),
    "all_reduce_": ("all_reduce", 0, 2, None),
    "all_reduce_coalesced": ("all_reduce", 0, 2, None),
    "all_reduce_coalesced_": ("all_reduce", 0, 2, None),
    "all_gather_into_tensor": ("all_gather", 0, 2, None),
    "all_gather_into_tensor_out": ("all_gather", 0, 2, None),
    "all_gather_into_tensor_coalesced": ("all_gather", 0, 2, None),
    "reduce_scatter_tensor": ("reduce_scatter", 0, 3, None),
    "reduce_scatter_tensor_out": ("reduce_scatter", 0, 3, None),
    "reduce_scatter_tensor_coalesced": ("reduce_scatter", 0, 3, None),
    "all_to_all_single": ("all_to_all", 0, 3, None),
    "broadcast": ("broadcast", 0, 2, 1),
    "broadcast_": ("broadcast", 0, 2, 1),
    "isend": ("send", 0, 3, 1),
    "irecv": ("recv", 0, 3, 1),
}
#: every method of dist.ProcessGroup, of any torch since 2.8, that leads to these
GROUP_METHODS = [
    "send",
    "recv",
    "recv_anysource",
    "allreduce",
    "allreduce_coalesced",
    "broadcast",
    "reduce",
    "allgather",
    "_allgather_base",
    "all_gather_single",
    "all_gather_single_coalesced",
    "allgather_coalesced",
    "allgather_into_tensor_coalesced",
    "reduce_scatter",
    "_reduce_scatter_base",
    "reduce_scatter_single",
    "reduce_scatter_single_coalesced",
    "reduce_scatter_tensor_coalesced",
    "gather",
    "scatter",
    "alltoall",
    "alltoall_base",
    "all_to_all_single",
    "barrier",
    "monitored_barrier",
]
#: namespace → operators that move data, or keep step
OPERATORS = {"c10d": _C10D, "_c10d_functional": _FUNCTIONAL}


def algorithm_bytes(kind: str, payload: int, ranks: int, is_root: bool) -> int:
    """What one of ``ranks`` ranks sends for a collective in which it hands in ``payload`` bytes.

    Ring for the symmetric ones (Patarasuk and Yuan, 2009: 2(n−1)/n for an all-reduce), root to all for
    broadcast and scatter, all to root for reduce and gather.
    """
    n = ranks
    share = {
        "all_reduce": 2 * (n - 1) / n,
        "reduce_scatter": (n - 1) / n,
        "all_to_all": (n - 1) / n,
        "all_gather": n - 1,
        "broadcast": (n - 1) if is_root else 0,
        "scatter": (n - 1) / n if is_root else 0,
        "reduce": 0 if is_root else 1,
        "gather": 0 if is_root else 1,
        "send": 1,
    }.get(kind, 0)
    return round(share * payload)
