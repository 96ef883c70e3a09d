"""Lesson 05, data parallelism by hand: its exercises in order, and the quiz."""

from __future__ import annotations

from autograder.exercise import Exercise, Question
from autograder.exercises.common import make_quiz
from autograder.exercises.ddp_buckets import MAKE_BUCKETS
from autograder.exercises.ddp_deadline import GPUS_FOR_DEADLINE
from autograder.exercises.ddp_replicas import AVERAGE_GRADIENTS, BROADCAST_STATE
from autograder.exercises.ddp_samples import EPOCH_INDICES
from autograder.exercises.ddp_wrapper import HAND_DDP

LESSON = "05_ddp"

QUESTIONS = (
    Question(
        key="q1",
        text=(
            "A team's data parallelism sums gradients over 8 ranks and never divides. Their loss curve with "
            "AdamW looks as it should. Where would the mistake show first?"
        ),
        options={
            "a": "Nowhere: the learning rate makes up for it.",
            "b": "In the next run with AdamW on more ranks, which diverges.",
            "c": "In the gradients themselves, or with SGD: every step is 8 times too large.",
            "d": "In the weights: they differ between the ranks.",
        },
        right="30c0fc6e8045a217",
        why=(
            "AdamW divides the gradient by its own size, so a constant factor hardly changes its step; all "
            "ranks are wrong in the same way. SGD takes 8 times the step, and clipping by norm sets in 8 times "
            "too early. Compare gradients before an optimizer sees them."
        ),
    ),
    Question(
        key="q2",
        text=(
            "A model has 100 MB of gradients. Somebody raises `bucket_cap_bytes` from 25 MiB to 1 GiB, since "
            "large messages use the link better. What happens?"
        ),
        options={
            "a": "One bucket is left; it can leave only when backward is over, so nothing overlaps.",
            "b": "The step gets faster: one latency instead of four.",
            "c": "Nothing: overlap does not depend on the buckets.",
            "d": "The averages become wrong, since a bucket must fit into the link's buffer.",
        },
        right="7833d3b13d526b61",
        why=(
            "A bucket is sent when its last gradient is there. With a single one this is the very last "
            "gradient. At 25 MiB the link is used well already, and three of four buckets travel while backward runs."
        ),
    ),
    Question(
        key="q3",
        text=(
            "4 ranks, 100 MB of gradients, 8 micro-batches per optimizer step. How much does each rank send "
            "per step, with `no_sync` for all but the last micro-batch, and without it?"
        ),
        options={
            "a": "100 MB and 800 MB",
            "b": "150 MB both times: only the last all-reduce counts",
            "c": "1.2 GB and 9.6 GB",
            "d": "150 MB and 1.2 GB",
        },
        right="f94a07c1e375b0a1",
        why=(
            "An all-reduce makes each rank send 2(n−1)/n times the size, 150 MB at 4 ranks. With `no_sync` "
            "there is one per optimizer step, without it one per micro-batch: 8 × 150 MB."
        ),
    ),
)
NUDGES = {
    "q1": "which optimizer's step depends on the size of the gradient?",
    "q2": "when is the first bucket complete, if there is only one?",
    "q3": "take the bytes of a ring all-reduce at 4 ranks, times the number of all-reduces.",
}

QUIZ = make_quiz(LESSON, QUESTIONS, NUDGES)

EXERCISES: list[Exercise] = [
    EPOCH_INDICES,
    BROADCAST_STATE,
    AVERAGE_GRADIENTS,
    MAKE_BUCKETS,
    HAND_DDP,
    GPUS_FOR_DEADLINE,
    QUIZ,
]
