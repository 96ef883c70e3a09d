"""``check``, ``grade``, progress and the command line, each in a process of its own as a learner has it."""

import json
import os
import subprocess
import sys
import textwrap

import pytest

from autograder.exercise import find
from autograder.service import ADDRESS_VARIABLE, JudgeService

RIGHT = """
def my_share(n_items, rank, world_size):
    size, rest = divmod(n_items, world_size)
    start = rank * size + min(rank, rest)
    return range(start, start + size + (rank < rest))
"""
WRONG = "def my_share(n_items, rank, world_size):\n    return range(0)\n"


def run_python(source, cwd, **variables):
    environment = {**os.environ, **variables}
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(source)],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )


def rankzero_command(*arguments, cwd=None):
    return subprocess.run(
        [sys.executable, "-m", "rankzero.cli", *map(str, arguments)],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_check_tells_and_raises_one_line_and_remembers(tmp_path):
    source = (
        WRONG
        + textwrap.dedent(
            """
        from autograder import CheckFailed, check, grade, progress
        try:
            check("my_share", my_share)
        except CheckFailed as failed:
            assert len(str(failed).splitlines()) == 1, failed
            assert failed._render_traceback_() == [f"CheckFailed: {failed}"]
        print(grade("my_share", my_share))
        """
        )
        + RIGHT
        + textwrap.dedent(
            """
        check("my_share", my_share)
        print("points", grade("my_share", my_share))
        print(progress())
        """
        )
    )
    done = run_python(source, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "my_share: not yet, 0 of 3 points" in done.stdout
    assert "points 3.0" in done.stdout
    assert "right     my_share" in done.stdout
    entry = json.loads((tmp_path / ".rankzero-progress.json").read_text())["my_share"]
    assert (entry["points"], entry["passed"], entry["tries"]) == (3.0, True, 2)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ('check("my_shar", my_share)', "did you mean 'my_share'"),
        ('check("my_share")', 'check("my_share", my_share)'),
        ('check("my_share", my_share, 3)', "2 answers were given"),
        ('import threading; lock = threading.Lock(); check("my_share", lambda *a: lock)', "the global 'lock', a lock"),
        ('import functools; check("my_share", functools.cache(lambda *a: 0))', "cannot be sent"),
    ],
)
def test_calls_of_check_that_cannot_work_get_a_sentence(tmp_path, call, words):
    done = run_python(f"{WRONG}\nfrom autograder import check\n{call}\n", tmp_path)
    assert "CheckFailed" in done.stderr
    assert words in done.stderr


def test_check_returns_at_once_while_nbgrader_grades(tmp_path):
    done = run_python(
        f"{WRONG}\nfrom autograder import check\ncheck('my_share', my_share)\n",
        tmp_path,
        NBGRADER_EXECUTION="autograde",
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_a_folder_that_cannot_be_written_loses_progress_but_not_the_check(tmp_path):
    readonly = tmp_path / "readonly"
    readonly.mkdir()
    (readonly / ".rankzero-progress.json").mkdir()  # a folder in the file's place refuses root as well
    done = run_python(f"{RIGHT}\nfrom autograder import check\ncheck('my_share', my_share)\n", readonly)
    assert done.returncode == 0, done.stderr


def test_two_processes_can_record_at_once(tmp_path):
    body = "\n".join(f"ledger.record(Verdict('exercise{{0}}-{n}', True, 1.0, 1.0, [], []))" for n in range(20))
    source = "from autograder import ledger\nfrom autograder.verdict import Verdict\n" + body
    both = [
        subprocess.Popen([sys.executable, "-c", source.replace("{0}", str(number))], cwd=tmp_path) for number in (1, 2)
    ]
    assert [process.wait(timeout=60) for process in both] == [0, 0]
    assert len(json.loads((tmp_path / ".rankzero-progress.json").read_text())) == 40


class TestOutsideJudge:
    """The judge that an instructor's process owns: the kernel has nothing but its address."""

    def grade(self, tmp_path, source, seed=11):
        with JudgeService(seed=seed) as service:
            done = run_python(
                source, tmp_path, **{ADDRESS_VARIABLE: service.address, "NBGRADER_EXECUTION": "autograde"}
            )
            return done, service.verdicts()

    def test_the_verdict_is_kept_outside(self, tmp_path):
        done, verdicts = self.grade(
            tmp_path, f"{RIGHT}\nfrom autograder import grade\nprint(grade('my_share', my_share))\n"
        )
        assert done.stdout.strip() == "3.0"
        assert verdicts["my_share"].points == 3.0

    def test_what_the_kernel_prints_or_patches_changes_nothing(self, tmp_path):
        source = f"""
{WRONG}
import autograder.client, autograder.judge, autograder.verdict
from autograder import grade
autograder.judge.judge = lambda *a, **k: None
real = autograder.client.ask
def ask(*arguments, **options):
    verdict = real(*arguments, **options)
    object.__setattr__(verdict, "points", 3.0)
    object.__setattr__(verdict, "passed", True)
    return verdict
autograder.client.ask = ask
print(grade("my_share", my_share))
"""
        done, verdicts = self.grade(tmp_path, source)
        assert done.stdout.strip() == "3.0"
        assert verdicts["my_share"].points == 0.0

    def test_crafted_messages_neither_earn_points_nor_end_the_judge(self, tmp_path):
        source = f"""
import os, socket, pickle, struct
from rankzero.ranks.channel import Channel, pack
class Bomb:
    def __reduce__(self):
        return os.system, ("touch {tmp_path}/exploded",)
def fresh():
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(os.environ["{ADDRESS_VARIABLE}"])
    return sock
for junk in (b"\\xff" * 4096, struct.pack("!II", 2, 0) + b"[]", b"", pack({{"exercise": "my_share", "hidden": True}})):
    sock = fresh(); sock.sendall(junk); sock.close()
channel = Channel(fresh())
channel.send({{"ask": "verdicts", "verdicts": {{"my_share": {{"points": 3}}}}}})
requests = [
    {{"exercise": "my_share", "hidden": True, "seed": 0, "verdict": {{"points": 3}}}},
    {{"exercise": 7}},
    {{"exercise": "my_share", "cells": 3}},
]
for request in requests:
    channel.send(request, pickle.dumps((Bomb(),)))
    assert channel.receive()[0]
"""
        done, verdicts = self.grade(tmp_path, source)
        assert done.returncode == 0, done.stderr
        assert verdicts["my_share"].points == 0.0
        assert set(verdicts) == {"my_share"}

    def test_the_seed_is_the_instructors_not_the_kernels(self, tmp_path):
        source = f"""
{RIGHT}
from autograder import client
from autograder.exercise import find
print([case.name for case in client.ask(find("my_share"), (my_share,), hidden=True, seed=0).cases])
"""
        _, verdicts = self.grade(tmp_path, source, seed=12345)
        expected = [case.name for case in find("my_share").draw(12345, hidden=True)]
        assert [case.name for case in verdicts["my_share"].cases] == expected

    def test_nothing_handed_in_means_no_verdict(self, tmp_path):
        assert self.grade(tmp_path, "pass")[1] == {}

    def test_interrupting_a_check_ends_the_judge_and_the_next_check_works(self, tmp_path):
        source = f"""
import os, signal, threading
signal.signal(signal.SIGINT, signal.default_int_handler)  # one started in the background may ignore it
from autograder import check, client
from autograder.exercise import find
find("my_share"), client.connect()  # what is slow the first time is done before the clock starts
def my_share(n_items, rank, world_size):
    while True: pass
threading.Timer(1, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    check("my_share", my_share)
except KeyboardInterrupt:
    print("interrupted")
{RIGHT}
check("my_share", my_share)
"""
        done = run_python(source, tmp_path)
        assert done.returncode == 0, done.stderr
        assert "my_share: right" in done.stdout


class TestCommand:
    def test_right_is_0_and_json_has_the_agreed_form(self, tmp_path):
        (tmp_path / "answer.py").write_text(RIGHT)
        done = rankzero_command("check", "my_share", tmp_path / "answer.py", "--hidden", "--seed", 5, "--json")
        result = json.loads(done.stdout)
        assert done.returncode == 0, done.stderr
        assert set(result) == {"exercise", "passed", "points", "max_points", "cases"}
        assert (result["passed"], result["points"], result["max_points"]) == (True, 3.0, 3.0)
        assert all(set(case) == {"name", "passed", "message"} for case in result["cases"])

    def test_wrong_is_1_and_text_tells_why(self, tmp_path):
        (tmp_path / "answer.py").write_text(WRONG)
        done = rankzero_command("check", "my_share", tmp_path / "answer.py")
        assert done.returncode == 1
        assert "not yet" in done.stdout

    def test_a_syntax_error_is_1_with_the_case_load(self, tmp_path):
        (tmp_path / "answer.py").write_text("def f(:\n")
        done = rankzero_command("check", "my_share", tmp_path / "answer.py", "--json")
        assert done.returncode == 1
        assert [case["name"] for case in json.loads(done.stdout)["cases"]] == ["load"]

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            (("check", "my_shar", "answer.py"), "did you mean 'my_share'"),
            (("check", "my_share", "missing.py"), "there is no file"),
            (("check", "my_share", "."), "there is no file"),
            (("check", "my_share", "bytes.py"), "cannot be read"),
            (("check", "my_share", "answer.py", "--bad"), "--bad"),
            (("check", "my_share", "answer.py", "--seed", "x"), "seed"),
        ],
    )
    def test_what_cannot_be_used_is_2_with_an_error(self, tmp_path, arguments, words):
        (tmp_path / "answer.py").write_text(RIGHT)
        (tmp_path / "bytes.py").write_bytes(b"\xff\xfe\x00")
        done = rankzero_command(*arguments, "--json", cwd=tmp_path)
        assert done.returncode == 2
        assert words in json.loads(done.stdout)["error"]
        plain = rankzero_command(*arguments, cwd=tmp_path)
        assert plain.returncode == 2
        assert words in plain.stderr

    def test_progress(self, tmp_path):
        done = rankzero_command("progress", "--json", cwd=tmp_path)
        assert json.loads(done.stdout)["next"] == "my_share"

    def test_progress_finds_what_was_done_in_the_learners_copies(self, tmp_path):
        (tmp_path / "work").mkdir()
        done = {"my_share": {"points": 3.0, "passed": True, "tries": 1}}
        (tmp_path / "work" / ".rankzero-progress.json").write_text(json.dumps(done))
        told = rankzero_command("progress", "--json", cwd=tmp_path)
        assert json.loads(told.stdout)["next"] == "sum_over_ranks"
        assert "right     my_share" in rankzero_command("progress", cwd=tmp_path).stdout
