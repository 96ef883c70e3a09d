"""What ranks note about themselves: marks come in order, on the clock of the messages, and are drawn."""

import subprocess
import sys

import pytest
import torch
import torch.distributed as dist

import rankzero
from rankzero.observe.observation import Mark, Message, Observation


def body():
    rankzero.mark("begins")
    dist.all_reduce(torch.ones(4))
    rankzero.mark('it\'s "half" done\n')
    dist.all_reduce(torch.ones(4))
    return 1


def test_marks_lie_between_the_calls_where_they_were_made():
    seen = rankzero.watch(body, ranks=2)
    for rank in range(2):
        first, second = (mark for mark in seen.marks if mark.rank == rank)
        one, other = seen.of_rank(rank)
        assert (first.name, first.calls) == ("begins", 0)
        assert (second.name, second.calls) == ('it\'s "half" done\n', 1)
        assert first.seconds <= one.issued_seconds <= second.seconds <= other.issued_seconds
    assert [mark.rank for mark in seen.marks] == [0, 0, 1, 1]


@pytest.mark.parametrize("record", [True, False])
def test_marks_do_no_harm_where_nobody_looks(record):
    assert rankzero.run(body, ranks=2, record=record) == [1, 1]


def test_a_mark_outside_of_ranks_loads_nothing():
    script = "import sys, rankzero; rankzero.mark('x'); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.strip() == "False", done.stderr


def call(index, issued, done):
    return Message(0, index, "all_reduce", (0, 1), None, 4096, 4096, (1024,), "float32", issued, done)


def test_the_timeline_shows_marks_and_calls_that_are_open_at_once():
    marks = [Mark(0, "backward", 0.010, 1), *(Mark(0, "gradient ready", at, 1) for at in (0.011, 0.012, 0.014))]
    messages = [call(0, 0.001, 0.002), call(1, 0.013, 0.020), call(2, 0.015, 0.021)]
    seen = Observation(2, [None, None], messages, marks=marks)
    whole, later = seen.timeline(), seen.timeline(since="backward")
    assert "rank 0 made 3 × all_reduce in 20 ms, marked 1 × backward (1 after its first call)" in whole.alt
    assert "rank 0 made 2 × all_reduce in 8 ms, marked 1 × backward (none after its first call)" in later.alt
    assert "marked 3 × gradient ready (1 after its first call)" in later.alt
    assert whole.png != later.png
    assert seen.timeline(since="no such mark").alt == whole.alt


def test_marks_alone_draw_too():
    picture = Observation(2, [None, None], marks=[Mark(1, "here", 0.5, 0)]).timeline()
    assert picture.alt == "Timeline: rank 1 marked 1 × here."
    assert len(picture.png) < 100_000
