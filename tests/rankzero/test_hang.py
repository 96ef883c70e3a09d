"""Comparing the ranks' calls, without any ranks: the events are written by hand."""

import json

from rankzero.observe import log as logs
from rankzero.ranks import hang


def call(index, kind, peer=None, group=(0, 1), shape=(4,), seq=0, **more):
    event = {
        "e": "call",
        "i": index,
        "kind": kind,
        "group": list(group),
        "peer": peer,
        "bytes": 16,
        "sent": 16,
        "shape": list(shape),
        "dtype": "float32",
        "seq": seq,
        "main": True,
        "t": 0.1 * index,
        "where": None,
    }
    return {**event, **more}


def wait(index):
    return {"e": "wait", "i": [index], "t": 1.0}


def done(index):
    return {"e": "done", "i": [index], "t": 2.0}


def read(rank, *events):
    return logs.read(rank, "\n".join(map(json.dumps, events)))


UNFINISHED = "unfinished"


def test_a_matched_pair_is_no_deadlock_however_long_it_takes():
    pair = [read(0, call(0, "send", 1), wait(0)), read(1, call(0, "recv", 0), wait(0))]
    assert not hang.is_deadlock([UNFINISHED] * 2, pair, quiet_seconds=100)
    assert hang.is_balanced(pair)


def test_a_rank_that_runs_may_still_do_its_part():
    waiting = [read(0, call(0, "all_reduce"), wait(0)), read(1)]
    assert not hang.is_deadlock([UNFINISHED, UNFINISHED], waiting, quiet_seconds=1)
    assert hang.is_deadlock([UNFINISHED, "finished"], waiting, quiet_seconds=1)


def test_a_third_rank_that_can_go_on_keeps_hope_alive():
    trio = [
        read(0, call(0, "recv", 1, (0, 1, 2)), wait(0)),
        read(1, call(0, "recv", 2, (0, 1, 2)), wait(0)),
        read(2, call(0, "send", 1, (0, 1, 2)), wait(0)),
    ]
    assert not hang.is_deadlock([UNFINISHED] * 3, trio, quiet_seconds=1)


def test_threads_are_never_called_a_deadlock():
    waiting = [read(0, call(0, "all_reduce", main=False), wait(0)), read(1)]
    assert not hang.is_deadlock([UNFINISHED, "finished"], waiting, quiet_seconds=9)


def test_different_shapes_of_one_collective_are_a_difference():
    two = [read(0, call(0, "all_reduce")), read(1, call(0, "all_reduce", shape=(5,)))]
    assert "float32[5]" in hang.first_difference(two)


def test_different_shapes_in_a_scatter_are_none():
    two = [read(0, call(0, "scatter", 0)), read(1, call(0, "scatter", 0, shape=(0,)))]
    assert hang.first_difference(two) == ""


def test_a_count_of_messages_that_does_not_come_out_even():
    assert not hang.is_balanced([read(0, call(0, "send", 1)), read(1)])
    assert not hang.is_balanced([read(0, call(0, "barrier")), read(1)])
    assert not hang.is_balanced([read(0, call(0, "recv", None)), read(1, call(0, "send", 0))])


def test_a_log_that_was_cut_short_or_forged_is_read_as_far_as_it_goes():
    text = json.dumps(call(0, "barrier")) + '\n{"e": "call", "i"\n{"e": "done", "i": [7], "t": 1}\n{"e": 3}\nnonsense'
    assert [message.kind for message in logs.read(0, text).messages] == ["barrier"]


def test_the_main_threads_stack_is_taken_from_a_dump():
    text = (
        'Thread 0x01 (most recent call first):\n  File "other.py", line 1 in run\n\n'
        'Current thread 0x02 (most recent call first):\n  File "cell.py", line 7 in body\n'
        '  File "worker.py", line 3 in serve_calls\n'
    )
    assert logs.read(0, text).stack[0] == ("cell.py", 7, "body")


def test_numbers_in_words():
    assert [hang.partner_number(seq) for seq in (0, 1, 2, 3, 10, 20)] == ["1st", "2nd", "3rd", "4th", "11th", "21st"]
    assert hang.rank_words([0]) == "rank 0"
    assert hang.rank_words([0, 2, 3]) == "ranks 0, 2 and 3"
