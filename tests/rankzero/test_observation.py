"""What is seen of a call: every message with its bytes and peer, threads and functional calls included; memory."""

import threading

import pytest
import torch
import torch.distributed as dist

import rankzero
from rankzero.observe.operators import algorithm_bytes


def kinds(seen, rank=0):
    return [message.kind for message in seen.of_rank(rank)]


def everything():
    n, rank = dist.get_world_size(), dist.get_rank()
    x = torch.ones(6)
    dist.all_reduce(x)
    dist.broadcast(x, 1)
    dist.reduce(x, 2)
    dist.all_gather([torch.empty(6) for _ in range(n)], x)
    dist.all_gather_into_tensor(torch.empty(6 * n), x)
    dist.reduce_scatter_tensor(torch.empty(2), x)
    dist.reduce_scatter(torch.empty(2), list(torch.ones(n, 2)))
    dist.gather(x, [torch.empty(6) for _ in range(n)] if rank == 0 else None, 0)
    dist.scatter(torch.empty(2), list(torch.ones(n, 2)) if rank == 0 else None, 0)
    dist.all_to_all_single(torch.empty(6), x)
    dist.barrier()


def test_every_collective_is_seen_with_its_bytes():
    seen = rankzero.watch(everything, ranks=3)
    expected = [
        ("all_reduce", 24, 32, None),
        ("broadcast", 24, 0, 1),
        ("reduce", 24, 24, 2),
        ("all_gather", 24, 48, None),
        ("all_gather", 24, 48, None),
        ("reduce_scatter", 24, 16, None),
        ("reduce_scatter", 24, 16, None),
        ("gather", 24, 0, 0),
        ("scatter", 24, 16, 0),
        ("all_to_all", 24, 16, None),
        ("barrier", 0, 0, None),
    ]
    made = [(message.kind, message.bytes, message.sent_bytes, message.peer) for message in seen.of_rank(0)]
    # a barrier moves nothing, whatever scratch tensor stands for it
    assert made == expected
    assert all(message.done_seconds is not None for message in seen.messages)
    assert seen.of_rank(0)[0].reduce_op == "sum"


def test_sends_and_receives_know_their_peer_and_their_line():
    def ring():
        n, rank = dist.get_world_size(), dist.get_rank()
        work = dist.isend(torch.ones(3, dtype=torch.float64), (rank + 1) % n)
        dist.recv(torch.empty(3, dtype=torch.float64), (rank - 1) % n)
        work.wait()

    seen = rankzero.watch(ring, ranks=3)
    send, recv = seen.of_rank(1)
    assert (send.kind, send.peer, send.bytes, send.sent_bytes, send.dtype) == ("send", 2, 24, 24, "float64")
    assert (recv.kind, recv.peer, recv.bytes, recv.sent_bytes) == ("recv", 0, 24, 0)
    assert send.where.function == "ring"
    assert send.where.file == __file__
    assert send.issued_seconds <= recv.issued_seconds <= recv.done_seconds <= send.done_seconds
    assert seen.traffic() == [[0, 24, 0], [0, 0, 24], [24, 0, 0]]


def test_batched_and_async_calls_are_seen():
    def batch():
        n, rank = dist.get_world_size(), dist.get_rank()
        operations = [
            dist.P2POp(dist.isend, torch.ones(2), (rank + 1) % n),
            dist.P2POp(dist.irecv, torch.empty(2), (rank - 1) % n),
        ]
        for work in dist.batch_isend_irecv(operations):
            work.wait()
        dist.all_reduce(torch.ones(2), async_op=True).wait()

    assert kinds(rankzero.watch(batch, ranks=2)) == ["send", "recv", "all_reduce"]


def test_a_group_of_some_ranks_is_seen_with_global_ranks():
    def body():
        group = dist.new_group([1, 2])
        if dist.get_rank() > 0:
            dist.broadcast(torch.ones(2), src=2, group=group)

    seen = rankzero.watch(body, ranks=3)
    (message,) = [message for message in seen.of_rank(1) if message.kind == "broadcast"]
    assert (message.group, message.peer) == ((1, 2), 2)


def test_calls_from_threads_and_functional_collectives_are_seen():
    import torch.distributed._functional_collectives as functional

    def body():
        thread = threading.Thread(target=lambda: dist.all_reduce(torch.ones(2)))
        thread.start()
        thread.join()
        total = functional.all_reduce(torch.ones(4), "sum", dist.group.WORLD)
        return total.sum().item()

    seen = rankzero.watch(body, ranks=2)
    assert seen.results == [8.0, 8.0]
    assert [(message.kind, message.bytes) for message in seen.of_rank(1)] == [("all_reduce", 8), ("all_reduce", 16)]


def test_calls_from_gradient_hooks_are_seen():
    def body():
        weight = torch.ones(3, requires_grad=True)
        weight.register_post_accumulate_grad_hook(lambda parameter: dist.all_reduce(parameter.grad))
        (weight * 2).sum().backward()
        return weight.grad.tolist()

    seen = rankzero.watch(body, ranks=2)
    assert seen.results[0] == [4.0, 4.0, 4.0]
    assert kinds(seen) == ["all_reduce"]


def test_calls_without_watching_work_the_same():
    assert rankzero.run(everything, ranks=3) == [None] * 3


@pytest.mark.parametrize(
    ("kind", "payload", "ranks", "root", "expected"),
    [
        ("all_reduce", 1200, 4, False, 1800),
        ("all_gather", 100, 4, False, 300),
        ("reduce_scatter", 1200, 4, False, 900),
        ("broadcast", 100, 4, True, 300),
        ("broadcast", 100, 4, False, 0),
        ("all_reduce", 1200, 1, False, 0),
        ("recv", 100, 4, False, 0),
    ],
)
def test_bytes_by_the_usual_algorithms(kind, payload, ranks, root, expected):
    assert algorithm_bytes(kind, payload, ranks, root) == expected


class TestMemory:
    def test_temporaries_count_views_and_older_tensors_do_not(self):
        before = torch.ones(1000)

        def body(older):
            view = older[:500]
            temporary = torch.ones(2000)
            kept = temporary[:10]  # a view keeps its whole storage
            total = view.sum() + temporary.sum()
            del temporary
            body.kept = kept
            return float(total)

        seen = rankzero.watch(body, before, ranks=1)
        assert seen.peak_live_bytes[0] == pytest.approx(8000, abs=64)
        assert seen.kept_bytes[0] == 8000

    def test_a_peak_is_the_most_at_once_not_the_sum(self):
        def body():
            for _ in range(5):
                torch.zeros(10_000)

        assert rankzero.watch(body, ranks=1).peak_live_bytes == [40_000]

    def test_a_tensor_made_from_a_list_counts(self):
        def body():
            body.kept = torch.tensor([1.0, 2.0, 3.0, 4.0])

        assert rankzero.watch(body, ranks=1).kept_bytes == [16]

    def test_a_storage_that_is_emptied_in_place_counts_no_more(self):
        def body():
            body.kept = torch.zeros(1000)
            body.kept.untyped_storage().resize_(0)
            torch.zeros(1)

        seen = rankzero.watch(body, ranks=1)
        assert seen.peak_live_bytes[0] == 4000
        assert seen.kept_bytes[0] == 0
