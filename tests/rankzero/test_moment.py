"""What a watched rank can ask about itself: calls, live bytes and the peak in the middle of a call."""

import pytest
import torch
import torch.distributed as dist

import rankzero


def test_a_moment_tells_calls_live_bytes_and_the_peak():
    def body():
        start = rankzero.moment()
        kept = torch.zeros(1000)
        dist.all_reduce(kept)
        large = kept.repeat(10)
        del large
        middle = rankzero.moment(restart_peak=True)
        small = torch.zeros(10)
        end = rankzero.moment()
        del small
        return [tuple(one) for one in (start, middle, end)]

    seen = rankzero.watch(body, ranks=2)
    start, middle, end = seen.results[0]
    assert start == (0, 0, 0)
    assert middle == (1, 4000, 44_000)
    assert end == (1, 4040, 4040)


def test_peaks_can_be_left_out_and_taken_up_again():
    def body():
        from rankzero.observe.recorder import current

        current().memory.stop_peak()
        del_me = torch.zeros(1000)
        del del_me
        kept = torch.zeros(10)
        quiet = rankzero.moment(restart_peak=True)
        kept = kept + 1
        return tuple(quiet), tuple(rankzero.moment())

    quiet, after = rankzero.watch(body, ranks=1).results[0]
    assert quiet == (0, 40, 0)
    assert after == (0, 40, 80)


@pytest.mark.parametrize("record", [True, False])
def test_nobody_watches_outside_of_a_watched_call(record):
    with pytest.raises(RuntimeError, match="only inside a function"):
        rankzero.moment()

    def body():
        with pytest.raises(RuntimeError, match="only inside a function"):
            rankzero.moment()

    rankzero.run(body, ranks=1, record=record)


def test_a_dtensor_counts_as_what_this_rank_holds_of_it():
    def body():
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import Shard, distribute_tensor

        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        sharded = distribute_tensor(torch.ones(4000), mesh, [Shard(0)])
        before = rankzero.moment().live_bytes
        states = torch.zeros_like(sharded)
        return rankzero.moment().live_bytes - before, states.numel()

    assert rankzero.watch(body, ranks=2).results == [(8000, 4000)] * 2
