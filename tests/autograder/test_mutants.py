"""Wrong answers fail with the sentence that names their cause; right ones, however built, pass."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from autograder.exercise import find
from autograder.judge import Answer, judge

MUTANTS = Path(__file__).parent.parent / "mutants"
SEED = 20_251
#: Least numbers of wrong and right answers, by exercise; others need at least those under "".
LEAST = {
    "": (6, 3),
    "ring_all_reduce": (12, 5),
    "epoch_indices": (8, 3),
    "broadcast_state": (8, 3),
    "average_gradients": (8, 3),
    "make_buckets": (8, 3),
    "hand_ddp": (15, 5),
    "gpus_for_deadline": (8, 3),
    "broadcast_tree": (8, 3),
    "all_gather_ring": (8, 3),
    "reduce_scatter_ring": (8, 3),
    "measured_peak": (8, 3),
    "count_parameters": (8, 3),
    "state_bytes": (8, 3),
    "activation_bytes": (8, 3),
    "logits_bytes": (8, 3),
    "largest_micro_batch": (8, 3),
    "zero_bytes": (8, 3),
    "flatten_pad": (8, 3),
    "zero1_adamw": (8, 3),
    "zero2_gradients": (8, 3),
    "zero3_module": (15, 5),
    "clip_sharded": (8, 3),
    "reshard": (8, 3),
}


def answers(kind: str) -> list:
    """The answers of a kind, sorted so that those of an exercise run together."""
    return [pytest.param(path, id=f"{path.parent.name}-{path.stem}") for path in sorted(MUTANTS.glob(f"*/{kind}_*.py"))]


def phrases(path: Path) -> list[str]:
    """What a failing message may contain, from the line ``says: …`` that ends the docstring."""
    last = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))).splitlines()[-1]
    assert last.startswith("says: "), f"{path}: the docstring does not end with a line `says: …`"
    return [phrase.strip().lower() for phrase in last.removeprefix("says: ").split(" | ")]


def judged(path: Path):
    exercise = find(path.parent.name)
    return judge(exercise, Answer.of_source(path.read_text(encoding="utf-8"), str(path)), hidden=True, seed=SEED)


@pytest.mark.parametrize("path", answers("wrong"))
def test_wrong_answers_fail_and_say_why(path: Path) -> None:
    verdict = judged(path)
    messages = [case.message.lower() for case in verdict.cases if case.passed is False]
    assert not verdict.passed
    assert verdict.points < verdict.max_points
    assert any(phrase in message for phrase in phrases(path) for message in messages), "\n".join(messages)


@pytest.mark.parametrize("path", answers("right"))
def test_right_answers_pass(path: Path) -> None:
    verdict = judged(path)
    assert verdict.passed, verdict.text()
    assert verdict.points == verdict.max_points


@pytest.mark.parametrize(
    "folder", [pytest.param(path, id=path.name) for path in sorted(MUTANTS.iterdir()) if path.is_dir()]
)
def test_there_are_enough_of_both_kinds(folder: Path) -> None:
    wrong, right = LEAST.get(folder.name, LEAST[""])
    assert len(list(folder.glob("wrong_*.py"))) >= wrong
    assert len(list(folder.glob("right_*.py"))) >= right
