"""The judge: what earns points, what does not, and that a foreign answer cannot move it."""

import textwrap

import pytest

from autograder.exercise import Case, Exercise, Judgement, Quiz, UnknownExercise, all_exercises, find
from autograder.judge import Answer, judge


def verdict_on(exercise_id, source, **options):
    return judge(find(exercise_id), Answer.of_source(textwrap.dedent(source), "/nowhere/answer.py"), **options)


MY_SHARE = """
def my_share(n_items, rank, world_size):
    size, rest = divmod(n_items, world_size)
    start = rank * size + min(rank, rest)
    return range(start, start + size + (rank < rest))
"""


@pytest.mark.parametrize("exercise", all_exercises(), ids=lambda exercise: exercise.id)
class TestEveryExercise:
    def test_its_judgements_have_points_and_visible_cases_with_something_to_do(self, exercise):
        cases = exercise.draw(0, hidden=False)
        assert exercise.points == sum(judgement.points for judgement in exercise.judgements)
        for judgement in exercise.judgements:
            fed = [case for case in cases if judgement.name in case.judgements]
            assert fed, f"no visible case feeds {judgement.name!r}"
            assert not exercise.process_group or max(case.ranks for case in fed) > 2

    def test_cases_feed_judgements_that_exist_and_names_are_unique(self, exercise):
        names = {judgement.name for judgement in exercise.judgements}
        cases = exercise.draw(5, hidden=True)
        assert all(set(case.judgements) <= names for case in cases)
        assert len({case.name for case in cases}) == len(cases)

    def test_the_hidden_seed_changes_hidden_cases_only(self, exercise):
        def drawn(seed, hidden):
            return repr([(case.name, case.inputs) for case in exercise.draw(seed, True) if case.hidden == hidden])

        assert drawn(1, False) == drawn(2, False)
        if not isinstance(exercise, Quiz):
            assert drawn(1, True) != drawn(2, True)


def test_points_of_the_lessons_are_those_of_the_syllabus():
    points = {exercise.id: exercise.points for exercise in all_exercises()}
    assert points == {
        "my_share": 3,
        "sum_over_ranks": 3,
        "fix_the_hang": 4,
        "quiz_00": 3,
        "measured_peak": 3,
        "count_parameters": 4,
        "state_bytes": 4,
        "activation_bytes": 4,
        "logits_bytes": 2,
        "largest_micro_batch": 3,
        "quiz_01": 3,
        "broadcast_tree": 3,
        "all_gather_ring": 3,
        "reduce_scatter_ring": 3,
        "ring_all_reduce": 5,
        "fit_alpha_beta": 2,
        "ring_seconds": 2,
        "bus_bandwidth": 2,
        "quiz_04": 3,
        "epoch_indices": 3,
        "broadcast_state": 2,
        "average_gradients": 3,
        "make_buckets": 2,
        "hand_ddp": 8,
        "gpus_for_deadline": 2,
        "quiz_05": 3,
        "zero_bytes": 2,
        "flatten_pad": 2,
        "zero1_adamw": 5,
        "zero2_gradients": 3,
        "zero3_module": 5,
        "clip_sharded": 1,
        "reshard": 2,
        "quiz_06": 3,
    }


def test_an_unknown_exercise_suggests_the_nearest():
    with pytest.raises(UnknownExercise, match="did you mean 'ring_all_reduce'"):
        find("ring_allreduce")


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("def my_share(:\n", "SyntaxError"),
        ("import nowhere_to_be_found\n", "ModuleNotFoundError"),
        ("import sys\nsys.exit(0)\n", "sys.exit(0)"),
        ("import os\nos._exit(0)\n", "left by itself"),
        ("x = 1\n", "does not define `my_share`"),
        ("", "does not define `my_share`"),
        ("while True:\n    pass\n", "Time is up"),
    ],
)
def test_a_file_that_does_not_load_fails_one_case_called_load(monkeypatch, source, words):
    monkeypatch.setattr("autograder.judge._LOAD_SECONDS", 1.5)
    verdict = verdict_on("my_share", source)
    assert [case.name for case in verdict.cases] == ["load"]
    assert words in verdict.cases[0].message
    assert (verdict.passed, verdict.points, verdict.max_points) == (False, 0.0, 3.0)


def test_a_file_may_have_a_guarded_main_and_import_its_neighbours(tmp_path):
    (tmp_path / "neighbour.py").write_text("def halve(n):\n    return divmod(n, 2)\n")
    path = tmp_path / "answer.py"
    path.write_text("import neighbour\n" + MY_SHARE + "if __name__ == '__main__':\n    raise SystemExit(1)\n")
    assert judge(find("my_share"), Answer.of_source(path.read_text(), str(path))).passed


def test_helpers_under_a_cache_travel_as_source():
    cached = "import functools\n@functools.cache\ndef twice(x):\n    return 2 * x\n" + MY_SHARE.replace(
        "rank * size", "twice(rank * size) // 2"
    )
    assert verdict_on("my_share", cached).passed


@pytest.mark.parametrize(
    "body",
    [
        "return None",
        "return 3",
        "return 'all of it'",
        "return [0, 1, 2]",
        "return object()",
        "print('x' * 2_000_000)",
        "raise KeyError('why')",
        "import sys; sys.exit(1)",
        "import os; os._exit(0)",
        "import os; os.fork(); return range(0)",
        "import time; time.sleep(600)",
        "import torch; return torch.zeros(100_000_000)",
        "return [0] * 3_000_000",
    ],
)
def test_bad_answers_earn_nothing_and_get_a_sentence(body):
    verdict = verdict_on("my_share", f"def my_share(n_items, rank, world_size):\n    {body}\n")
    assert (verdict.passed, verdict.points) == (False, 0.0)
    assert verdict.first_failure.message.strip()


SAME_VALUE = "def sum_over_ranks(value):\n    return value\n"
ALWAYS_EQUAL = """
import torch
class Same(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return True
    def __eq__(self, other): return True
class Number(float):
    def __eq__(self, other): return True
    def __sub__(self, other): return 0.0
"""


@pytest.mark.parametrize(
    "source",
    [
        ALWAYS_EQUAL + "def sum_over_ranks(value):\n    return Number(value)\n",
        ALWAYS_EQUAL + "def sum_over_ranks(value):\n    return torch.ones(()).as_subclass(Same)\n",
        "import torch\ntorch.allclose = torch.equal = lambda *a, **k: True\n" + SAME_VALUE,
        "import autograder.judge as j\nj.judge = None\nimport builtins\nbuiltins.abs = lambda x: 0\n" + SAME_VALUE,
        "import autograder.compare as c\nfor n in dir(c):\n    setattr(c, n, lambda *a, **k: None)\n" + SAME_VALUE,
    ],
)
def test_objects_that_lie_and_patches_earn_nothing(source):
    assert verdict_on("sum_over_ranks", source, hidden=True, seed=3).points == 0.0


def test_an_answer_cannot_see_what_is_expected():
    spy = """
    import gc, sys
    def sum_over_ranks(value):
        cases = [o for o in gc.get_objects() if type(o).__name__ == "Case"]
        loaded = [name for name in sys.modules if name.startswith("autograder.exercises.0")]
        raise RuntimeError(f"{len(cases)} cases, {loaded}")
    """
    assert "0 cases, []" in verdict_on("sum_over_ranks", spy).first_failure.message


def exercise_with(*judgements, cases):
    def drive(answers, inputs):
        return answers.answer(inputs["x"])

    return Exercise("tiny", "00_start_here", ("answer",), judgements, lambda rng: cases, drive, process_group=True)


def is_expected(case, seen):
    return None if seen.results == [case.expected] else f"got {seen.results[0]}"


class TestPoints:
    value = Judgement("value", 2, is_expected)
    edge = Judgement("edge", 1, is_expected)
    how = Judgement("how", 1, lambda case, seen: None, how=True)

    def verdict(self, source, *cases):
        exercise = exercise_with(self.value, self.edge, self.how, cases=list(cases))
        return judge(exercise, Answer.of_source(source, "/nowhere/answer.py"))

    def cases(self):
        return (
            Case("one", [{"x": 1}], ("value", "how"), 1),
            Case("two", [{"x": 2}], ("value",), 2),
            Case("none", [{"x": 0}], ("edge",), 0),
        )

    def test_all_right(self):
        verdict = self.verdict("answer = lambda x: x", *self.cases())
        assert (verdict.points, verdict.max_points, verdict.passed) == (4.0, 4.0, True)

    def test_a_judgement_earns_only_if_all_its_cases_pass_and_nothing_counts_without_the_first(self):
        verdict = self.verdict("answer = lambda x: min(x, 1)", *self.cases())
        assert [(one.name, one.passed, one.points) for one in verdict.judgements] == [
            ("value", False, 0.0),
            ("edge", None, 0.0),
            ("how", None, 0.0),
        ]
        assert verdict.points == 0.0

    def test_an_edge_that_fails_leaves_the_core_its_points_and_takes_those_of_how(self):
        verdict = self.verdict("answer = lambda x: x or 7", *self.cases())
        assert (verdict.points, verdict.passed) == (2.0, False)

    def test_a_judgement_without_a_case_earns_nothing(self):
        verdict = self.verdict("answer = lambda x: x", *self.cases()[:2])
        assert verdict.points == 3.0
        assert not verdict.passed

    def test_a_hang_ends_the_run(self):
        hanging = Case("hang", [{"x": 1}], ("value",), 1, deadline_seconds=1.0)
        verdict = self.verdict("def answer(x):\n    while True: pass\n", hanging, *self.cases()[1:])
        assert [case.passed for case in verdict.cases] == [False, None, None]
        assert "Time is up" in verdict.cases[0].message

    def test_json_has_the_agreed_form(self):
        public = self.verdict("answer = lambda x: x or 7", *self.cases()).public_json()
        assert list(public) == ["exercise", "passed", "points", "max_points", "cases"]
        assert public["cases"][2] == {"name": "none", "passed": False, "message": "got 7"}


def test_what_the_answer_printed_is_told_with_the_failure():
    source = "def my_share(n_items, rank, world_size):\n    print('here I am')\n    return range(0)\n"
    assert "here I am" in verdict_on("my_share", source).text()
    assert "here I am" in verdict_on("my_share", source).html()


def test_html_is_escaped():
    source = "def my_share(n_items, rank, world_size):\n    raise ValueError('<script>alert(1)</script>')\n"
    assert "<script>" not in verdict_on("my_share", source).html()
