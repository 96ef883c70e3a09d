"""What a learner reads when ranks raise, die or hang, and that nothing is left running."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest
import torch
import torch.distributed as dist

import rankzero


def failure_of(body, ranks=3, timeout=20.0):
    with pytest.raises(rankzero.RankError) as caught:
        rankzero.run(body, ranks=ranks, timeout=timeout)
    return caught.value


class TestHangs:
    def test_a_collective_that_some_ranks_never_enter(self):
        def body():
            if dist.get_rank() == 0:
                dist.all_reduce(torch.ones(4))

        error = failure_of(body)
        assert isinstance(error, rankzero.HangError)
        assert error.outcome.stopped == "deadlock"
        assert [row.state for row in error.report.rows] == ["waits", "finished", "finished"]
        assert error.report.rows[0].call == "all_reduce of float32[4] (sum)"
        assert "dist.all_reduce(torch.ones(4))" in str(error)
        assert "ranks 1 and 2 make no such call" in error.report.difference
        assert "ranks 1 and 2 finished without" in error.report.cause

    def test_everybody_sends_first(self):
        def body():
            rank, ranks = dist.get_rank(), dist.get_world_size()
            tensor = torch.ones(4)
            dist.send(tensor, (rank + 1) % ranks)
            dist.recv(tensor, (rank - 1) % ranks)

        error = failure_of(body)
        assert error.outcome.stopped == "deadlock"
        assert [row.call for row in error.report.rows][2] == "send of float32[4] to rank 0"
        assert "rank 1 has called no recv from rank 0" in error.report.difference
        assert "none receives" in error.report.cause

    def test_everybody_receives_first(self):
        def body():
            rank, ranks = dist.get_rank(), dist.get_world_size()
            dist.recv(torch.ones(4), (rank - 1) % ranks)
            dist.send(torch.ones(4), (rank + 1) % ranks)

        assert "nobody sends" in failure_of(body).report.cause

    def test_different_collectives(self):
        def body():
            if dist.get_rank() == 1:
                dist.broadcast(torch.ones(4), 0)
            else:
                dist.all_reduce(torch.ones(4))

        error = failure_of(body)
        assert "ranks 0 and 2 call all_reduce of float32[4] (sum)" in error.report.difference
        assert "rank 1 calls broadcast of float32[4], root rank 0" in error.report.difference

    def test_the_difference_is_found_at_the_call_where_it_is(self):
        def body():
            for step in range(3):
                dist.all_reduce(torch.ones(2))
                if step == 1 and dist.get_rank() == 2:
                    dist.barrier()

        assert "at collective 3" in failure_of(body).report.difference

    def test_a_dropped_handle(self):
        def body():
            rank, ranks = dist.get_rank(), dist.get_world_size()
            dist.isend(torch.ones(4), (rank + 1) % ranks)
            time.sleep(0.1)
            dist.recv(torch.ones(4), (rank - 1) % ranks)

        error = failure_of(body)
        assert error.outcome.stopped == "deadlock"
        assert "never waited for it" in error.report.cause

    def test_a_loop_that_never_ends(self):
        def body():
            while True:
                pass

        error = failure_of(body, ranks=2, timeout=1.5)
        assert error.outcome.stopped == "deadline"
        assert {row.state for row in error.report.rows} == {"runs"}
        assert "loop that never ends" in error.report.cause
        assert "while True" in str(error) or "pass" in str(error)

    def test_a_wait_on_a_handle_in_a_subgroup(self):
        def body():
            pair = dist.new_group([0, 1])
            if dist.get_rank() == 0:
                work = dist.all_reduce(torch.ones(3), group=pair, async_op=True)
                work.wait()

        error = failure_of(body)
        assert error.report.rows[0].call == "all_reduce of float32[3] (sum)"
        assert "work.wait()" in str(error)
        assert "the group of ranks 0 and 1" in error.report.difference

    def test_a_hang_that_is_not_recorded_still_shows_the_lines(self):
        def body():
            if dist.get_rank() == 0:
                dist.all_reduce(torch.ones(4))

        with pytest.raises(rankzero.HangError) as caught:
            rankzero.run(body, ranks=2, timeout=1.5, record=False)
        assert caught.value.outcome.stopped == "deadline"
        assert "dist.all_reduce(torch.ones(4))" in str(caught.value)

    def test_a_slow_right_program_is_not_called_a_deadlock(self):
        def body():
            if dist.get_rank() == 0:
                time.sleep(1.5)
            total = torch.ones(2)
            dist.all_reduce(total)
            return total.tolist()

        assert rankzero.run(body, ranks=3) == [[3.0, 3.0]] * 3

    def test_waiting_for_a_thread_of_another_rank_is_not_called_a_deadlock(self):
        def body():
            if dist.get_rank() == 1:
                late = threading.Thread(target=lambda: (time.sleep(1.0), dist.send(torch.ones(2), 0)))
                late.start()
                late.join()
            else:
                dist.recv(torch.zeros(2), 1)
            return "done"

        assert rankzero.run(body, ranks=2) == ["done", "done"]


class TestFailures:
    def test_only_the_learners_own_lines_are_shown(self):
        def inner():
            raise ValueError("on purpose")

        def body():
            if dist.get_rank() == 1:
                inner()
            dist.barrier()

        error = failure_of(body)
        assert str(error).startswith("rank 1 raised ValueError: on purpose")
        assert [frame.function for frame in error.outcome.ends[1].frames] == ["body", "inner"]
        assert "site-packages" not in str(error)
        assert "waits in barrier" in str(error)

    def test_sys_exit(self):
        assert "every rank called sys.exit(3)" in str(failure_of(lambda: sys.exit(3)))

    def test_os_exit(self):
        def body():
            if dist.get_rank() == 2:
                os._exit(7)

        assert "rank 2 left by itself (os._exit or the like) with exit status 7" in str(failure_of(body))

    def test_an_abort_is_explained_by_the_sizes_that_differ(self):
        def body():
            if dist.get_rank() == 0:
                dist.send(torch.ones(4, dtype=torch.float64), 1)
            elif dist.get_rank() == 1:
                dist.recv(torch.ones(4), 0)

        error = str(failure_of(body))
        assert "rank 1 aborted (SIGABRT)" in error
        assert "rank 0 sends float64[4] (32 bytes), rank 1 receives float32[4] (16 bytes)" in error

    def test_a_broken_connection_is_not_taken_for_the_cause(self):
        def body():
            if dist.get_rank() == 1:
                os._exit(3)
            dist.all_reduce(torch.ones(2))

        assert str(failure_of(body)).startswith("rank 1 left by itself")

    def test_a_kill_is_explained(self):
        def body():
            os.kill(os.getpid(), signal.SIGKILL)

        assert "was killed (SIGKILL)" in str(failure_of(body))

    def test_deep_recursion_is_shown_short(self):
        def body():
            return body()

        error = str(failure_of(body, ranks=1))
        assert "RecursionError" in error
        assert len(error.splitlines()) < 14


def processes_with(marker):
    """Processes in whose environment the marker stands."""
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/environ", "rb") as file:
                if marker.encode() in file.read():
                    found.append(int(entry))
        except OSError:
            continue
    return found


def wait_until_gone(marker):
    deadline = time.monotonic() + 15
    while processes_with(marker) and time.monotonic() < deadline:
        time.sleep(0.05)
    return processes_with(marker)


SCRIPT = textwrap.dedent(
    """
    import os, sys, time
    import rankzero

    def body():
        if os.fork() == 0:          # a daemon: its own session, adopted by nobody
            os.setsid()
            if os.fork() == 0:
                time.sleep(600)
            os._exit(0)
        if sys.argv[1] == "stay":
            print("started", flush=True)
            time.sleep(600)

    rankzero.run(body, ranks=2, timeout=600)
    """
)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("how", ["stay", "leave"])
def test_nothing_is_left_when_the_owner_is_killed_or_ends(tmp_path, how):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    marker = f"RANKZERO_TEST_MARKER={how}{os.getpid()}"
    name, value = marker.split("=")
    owner = subprocess.Popen(
        [sys.executable, str(script), how], env={**os.environ, name: value}, stdout=subprocess.PIPE, text=True
    )
    if how == "stay":
        assert "started" in owner.stdout.readline()  # output of calls longer than a second is shown as it comes
        owner.kill()
    owner.wait(timeout=60)
    assert wait_until_gone(marker) == []


def interrupt_soon(seconds):
    timer = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    return timer


@pytest.fixture
def interruptible():
    """A process that was started in the background may ignore SIGINT; here it is to be heard."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
class TestInterrupts:
    def test_an_interrupt_reaches_the_ranks_and_they_live_on(self):
        def loop():
            while True:
                time.sleep(0.01)

        with rankzero.Ranks(2) as ranks:
            pids = ranks.run(os.getpid)
            interrupt_soon(0.5)
            with pytest.raises(KeyboardInterrupt, match=r"time\.sleep"):
                ranks.run(loop)
            assert ranks.run(os.getpid) == pids

    def test_ranks_that_cannot_be_woken_are_replaced(self):
        def wait():
            if dist.get_rank() == 0:
                dist.recv(torch.ones(1), 1)
            time.sleep(600)

        with rankzero.Ranks(2) as ranks:
            pids = ranks.run(os.getpid)
            interrupt_soon(0.5)
            with pytest.raises(KeyboardInterrupt, match=r"(?s)waits in recv.*fresh ranks"):
                ranks.run(wait)
            assert not set(pids) & set(ranks.run(os.getpid))
