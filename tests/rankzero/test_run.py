"""Running functions on ranks: results, output, limits, and what cannot travel."""

import os
import threading

import pytest
import torch
import torch.distributed as dist

import rankzero


def scaled_rank(factor, offset=0):
    return dist.get_rank() * factor + offset


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_results_come_back_by_rank(ranks):
    assert rankzero.run(scaled_rank, 10, offset=1, ranks=ranks) == [10 * rank + 1 for rank in range(ranks)]


def test_a_closure_travels_with_what_it_closes_over():
    table = {"a": torch.arange(3)}

    def body():
        total = table["a"].clone() * (dist.get_rank() + 1)
        dist.all_reduce(total)
        return total

    assert [result.tolist() for result in rankzero.run(body, ranks=2)] == [[0, 3, 6]] * 2


def test_ranks_are_processes_of_their_own_and_end_with_the_call():
    pids = rankzero.run(os.getpid, ranks=3)
    assert len({*pids, os.getpid()}) == 4
    assert not any(os.path.exists(f"/proc/{pid}") for pid in pids)


def test_what_ranks_print_is_shown_by_rank(capsys):
    def speak():
        print(f"one from {dist.get_rank()}\ntwo")

    rankzero.run(speak, ranks=2)
    assert capsys.readouterr().out.splitlines() == [
        "rank 0 │ one from 0",
        "rank 0 │ two",
        "rank 1 │ one from 1",
        "rank 1 │ two",
    ]


def test_a_flood_of_output_is_cut_and_counted(capsys):
    def flood():
        for _ in range(40):
            print("x" * 50_000)

    rankzero.run(flood, ranks=1)
    out = capsys.readouterr().out
    assert len(out) < 80_000
    assert "more bytes are not shown" in out


def test_output_of_a_child_process_and_of_c_code_is_caught_too(capsys):
    def speak():
        os.write(2, b"from the file descriptor\n")
        os.system("echo from a child")

    rankzero.run(speak, ranks=1)
    out = capsys.readouterr().out
    assert "rank 0 │ from the file descriptor" in out
    assert "rank 0 │ from a child" in out


@pytest.mark.parametrize(
    ("ranks", "error", "words"),
    [
        (0, ValueError, "1 to 64"),
        (-1, ValueError, "1 to 64"),
        (1000, ValueError, "1 to 64"),
        ("4", TypeError, "whole number"),
        (2.5, TypeError, "whole number"),
    ],
)
def test_an_impossible_world_size_is_refused(ranks, error, words):
    with pytest.raises(error, match=words):
        rankzero.run(scaled_rank, 1, ranks=ranks)


def test_an_unknown_backend_is_refused():
    with pytest.raises(ValueError, match="'gloo'"):
        rankzero.run(scaled_rank, 1, backend="mpi")


@pytest.mark.parametrize(("gpus", "ranks"), [(0, 2), (1, 2), (3, 4)])
def test_two_ranks_never_share_a_gpu_under_nccl(monkeypatch, gpus, ranks):
    monkeypatch.setattr("rankzero.ranks.start.gpu_count", lambda: gpus)
    with pytest.raises(ValueError, match="a GPU of its own for each rank"):
        rankzero.run(scaled_rank, 1, ranks=ranks, backend="nccl")


def test_auto_takes_gloo_where_gpus_are_too_few_and_nccl_where_they_are_enough(monkeypatch):
    from rankzero.ranks.launch import _checked_backend

    monkeypatch.setattr("rankzero.ranks.start.gpu_count", lambda: 2)
    assert _checked_backend("auto", 4) == "gloo"
    assert _checked_backend("auto", 2) == "cpu:gloo,cuda:nccl"
    assert _checked_backend("gloo", 2) == "gloo"


def test_a_function_that_cannot_travel_names_the_part_at_fault():
    lock = threading.Lock()

    def body():
        return lock

    with pytest.raises(TypeError, match="the variable 'lock', a lock"):
        rankzero.run(body)


def test_an_argument_that_cannot_travel_is_named():
    with pytest.raises(TypeError, match="generator"):
        rankzero.run(scaled_rank, (number for number in range(3)))


def test_something_that_is_no_function_is_refused():
    with pytest.raises(TypeError, match="must be a function"):
        rankzero.run(3)


def test_a_result_that_cannot_travel_back_is_explained():
    with pytest.raises(rankzero.RankError, match="a lock, cannot travel back"):
        rankzero.run(threading.Lock, ranks=2)


def test_random_numbers_differ_between_ranks_and_launches():
    def draw():
        import random

        return random.random()

    drawn = rankzero.run(draw, ranks=3) + rankzero.run(draw, ranks=3)
    assert len(set(drawn)) == 6


def test_ranks_have_the_owners_folder_variables_and_arguments(tmp_path, monkeypatch):
    """The warm server was started earlier, somewhere else; ranks must not show it."""
    rankzero.run(os.getpid, ranks=1)
    (tmp_path / "just_written.py").write_text("def answer():\n    return 42\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("SET_JUST_NOW", "yes")
    import just_written

    def body():
        import sys

        return os.getcwd(), os.environ["SET_JUST_NOW"], sys.argv

    import sys

    assert rankzero.run(body, ranks=1) == [(str(tmp_path), "yes", sys.argv)]
    assert rankzero.run(just_written.answer, ranks=1) == [42]


def test_a_warm_server_that_was_killed_is_replaced():
    from rankzero.ranks import warm

    warm.server().process.kill()
    assert rankzero.run(scaled_rank, 1, ranks=2) == [0, 1]


def test_threads_may_run_ranks_at_the_same_time():
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda factor: rankzero.run(scaled_rank, factor, ranks=2), range(8)))
    assert results == [[0, factor] for factor in range(8)]


def test_large_tensors_travel_both_ways():
    sent = torch.arange(4_000_000, dtype=torch.float32)
    received = rankzero.run(lambda tensor: tensor + dist.get_rank(), sent, ranks=2)
    assert torch.equal(received[1], sent + 1)


class TestPersistentRanks:
    def test_they_keep_their_processes_and_what_those_hold(self):
        def remember(value):
            os.environ["REMEMBERED"] = value

        with rankzero.Ranks(2) as ranks:
            pids = ranks.run(os.getpid)
            ranks.run(remember, "yes")
            assert ranks.run(os.getenv, "REMEMBERED") == ["yes", "yes"]
            assert ranks.run(os.getpid) == pids

    def test_an_exception_on_all_ranks_does_not_cost_them_their_memory(self):
        def fail():
            raise ValueError("no")

        with rankzero.Ranks(2) as ranks:
            pids = ranks.run(os.getpid)
            with pytest.raises(rankzero.RankError, match="every rank raised ValueError: no"):
                ranks.run(fail)
            assert ranks.run(os.getpid) == pids

    def test_after_a_hang_the_next_call_has_fresh_ranks(self):
        def hang():
            if dist.get_rank() == 0:
                dist.barrier()

        with rankzero.Ranks(2) as ranks:
            pids = ranks.run(os.getpid)
            with pytest.raises(rankzero.HangError):
                ranks.run(hang, timeout=10)
            assert ranks.fresh
            assert not set(ranks.run(os.getpid)) & set(pids)

    def test_a_message_left_behind_cannot_reach_the_next_call(self):
        def leave_one_behind():
            if dist.get_rank() == 0:
                dist.isend(torch.ones(2), 1)

        with rankzero.Ranks(2) as ranks:
            ranks.run(leave_one_behind)
            assert ranks.fresh

    def test_closing_twice_is_harmless_and_ends_the_processes(self):
        ranks = rankzero.Ranks(2)
        pids = ranks.run(os.getpid)
        ranks.close()
        ranks.close()
        assert not any(os.path.exists(f"/proc/{pid}") for pid in pids)


def test_ranks_started_one_by_one_behave_alike(monkeypatch):
    """The way of macOS, where forking a process that has loaded torch is not safe."""
    monkeypatch.setenv("RANKZERO_START", "spawn")

    def body():
        total = torch.ones(2) * dist.get_rank()
        dist.all_reduce(total)
        return total.tolist()

    assert rankzero.run(body, ranks=2, timeout=60) == [[1.0, 1.0]] * 2
