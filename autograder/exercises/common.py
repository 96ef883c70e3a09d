"""What the exercises of several lessons share: rank-side helpers, verdicts about traffic, quizzes."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch

from autograder.exercise import Case, Judgement, Question, Quiz, hash_letter
from rankzero.observe.observation import POINT_TO_POINT, Message, Observation

#: Kinds that an exercise "from send and recv" may use. A barrier moves no data.
BY_HAND = (*POINT_TO_POINT, "barrier")


# -- in the rank: shipped there by value, so these use only torch and the standard library ---------------


def pause(inputs: dict[str, Any]) -> None:
    """Arrive late, where the case says so."""
    time.sleep(inputs.get("sleep_seconds", 0.0))


def bring_home(value: Any) -> Any:
    """A tensor as a copy of what it holds now: what happens to it later cannot show. Else the value."""
    return value.detach().clone() if isinstance(value, torch.Tensor) else value


def as_number(value: Any) -> Any:
    """A float if ``value`` is one number (int, float, numpy scalar, 0-dim tensor); else the value itself."""
    if isinstance(value, bool):
        return value
    try:
        if isinstance(value, (int, float)):
            return float(value)
        if getattr(value, "shape", None) == () and hasattr(value, "item"):
            return float(value.item())
    except (TypeError, ValueError, OverflowError):
        pass
    return value


# -- on the judge's side ----------------------------------------------------------------------------------


def torch_generator(rng: random.Random) -> torch.Generator:
    """A torch generator that draws the same numbers whenever ``rng`` is in the same state."""
    return torch.Generator().manual_seed(rng.getrandbits(48))


def share(n_items: int, rank: int, world_size: int) -> range:
    """The contiguous share of one rank; sizes differ by at most one, the larger ones come first."""
    size, longer = divmod(n_items, world_size)
    start = rank * size + min(rank, longer)
    return range(start, start + size + (rank < longer))


def line_of(message: Message) -> str:
    """ " (line 7)" where the learner's line is known, else nothing."""
    return f" (line {message.where.line})" if message.where else ""


def library_call(seen: Observation, name: str) -> str | None:
    """A sentence if an answer that is to be built from send and recv called a collective of the library."""
    for message in seen.messages:
        if message.kind not in BY_HAND:
            return (
                f"`{name}` called the library's {message.kind}{line_of(message)}. Here it is to be "
                "built from "
                "`send` and `recv` (`isend`, `irecv`, `batch_isend_irecv`)."
            )
    return None


def not_neighbours(seen: Observation) -> str | None:
    """A sentence if a rank sent to one that is not beside it in the ring."""
    for message in seen.messages:
        left, right = (message.rank - 1) % seen.ranks, (message.rank + 1) % seen.ranks
        if message.kind == "send" and message.peer not in (left, right):
            return (
                f"Rank {message.rank} sent to rank {message.peer}{line_of(message)}; in a ring of "
                f"{seen.ranks} it "
                f"sends only to its neighbours, ranks {left} and {right}."
            )
    return None


def too_many_bytes(seen: Observation, most: int, formula: str, least_in_all: int, hidden: bool) -> str | None:
    """A sentence if a rank sent more than ``most`` bytes, or all of them fewer than the task needs at all."""
    for rank in range(seen.ranks):
        sent = seen.sent_bytes(rank)
        if sent > most:
            if not most:
                return f"Rank {rank} sent bytes where there was nothing to send."
            numbers = f"{sent / most:.3g} times what is needed" if hidden else f"{sent} bytes, {most} are enough"
            return f"Rank {rank} sent {numbers} ({formula}). {_waste(sent / most, seen.ranks)}"
    if sum(seen.sent_bytes(rank) for rank in range(seen.ranks)) < least_in_all:
        return (
            "Fewer bytes were seen to be sent than the task needs. In a narrower dtype, or around `torch.distributed`?"
        )
    return None


def _waste(ratio: float, ranks: int) -> str:
    if abs(ratio - ranks / (ranks - 1)) < 0.01:
        return "One step too many? After n−1 steps every piece has been everywhere."
    if abs(ratio - (2 * ranks - 1) / (2 * ranks - 2)) < 0.01:
        return "One of the two loops takes one step too many; n−1 steps are enough for each."
    if abs(ratio - ranks / 2) < 0.01 or ratio >= 2:
        return "Does the whole tensor travel where one piece of it would do, or in a wider dtype?"
    return "Pieces of at most ⌈numel / n⌉ elements, n−1 steps, each step one piece."


# -- quizzes ----------------------------------------------------------------------------------------------


def quiz_drive(answers: SimpleNamespace, inputs: dict[str, Any]) -> Any:
    """The letters, as plain strings by question."""
    given = answers.answers
    if not isinstance(given, dict):
        return type(given).__name__
    return {str(key)[:20]: str(letter)[:20] for key, letter in given.items() if letter is not None}


def make_quiz(lesson: str, questions: Sequence[Question], nudges: dict[str, str]) -> Quiz:
    """A lesson's quiz: one visible case and one point per question.

    ``nudges`` says, by question, where to think on after a wrong letter.
    """
    quiz_id = f"quiz_{lesson[:2]}"

    def cases(rng: random.Random) -> list[Case]:
        return [Case(question.key, [{}], (question.key,)) for question in questions]

    def judgement(question: Question) -> Judgement:
        def verdict(case: Case, seen: Observation) -> str | None:
            return _wrong_letter(quiz_id, question, seen.results[0], nudges[question.key])

        return Judgement(question.key, 1, verdict)

    return Quiz(
        id=quiz_id,
        lesson=lesson,
        names=("answers",),
        judgements=tuple(map(judgement, questions)),
        cases=cases,
        drive=quiz_drive,
        process_group=False,
        questions=tuple(questions),
    )


def _wrong_letter(quiz_id: str, question: Question, given: Any, nudge: str) -> str | None:
    if not isinstance(given, dict):
        return f'`answers` is {_article(given)}; a dict was expected, such as {{"{question.key}": "a"}}.'
    letter = given.get(question.key, "").strip().lower()
    if letter not in question.options:
        shown = f"{letter!r} is none of its letters" if letter else "it has no answer yet"
        return f"{shown}; the question takes one of {', '.join(question.options)}."
    if hash_letter(quiz_id, question.key, letter) != question.right:
        return f"{letter} is not it; {nudge}"
    return None


def _article(type_name: Any) -> str:
    return f"{'an' if str(type_name)[:1] in 'aeio' else 'a'} {type_name}"
