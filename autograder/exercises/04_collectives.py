"""Lesson 04, broadcast to ring all-reduce: its exercises in order, and the quiz."""

from __future__ import annotations

from autograder.exercise import Exercise, Question
from autograder.exercises.alpha_beta import BUS_BANDWIDTH, FIT_ALPHA_BETA, RING_SECONDS
from autograder.exercises.broadcast import BROADCAST
from autograder.exercises.common import make_quiz
from autograder.exercises.rings import ALL_GATHER, REDUCE_SCATTER, RING_ALL_REDUCE

LESSON = "04_collectives"

QUESTIONS = (
    Question(
        key="q1",
        text=(
            "A ring all-reduce of 800 MB of gradients over 8 ranks takes 0.1 s. How much does each "
            "rank send, and what is "
            "the bus bandwidth?"
        ),
        options={
            "a": "800 MB; 8 GB/s",
            "b": "5.6 GB; 56 GB/s",
            "c": "1.4 GB; 14 GB/s",
            "d": "1.4 GB; 8 GB/s",
        },
        right="881b43a1dad17852",
        why=(
            "Two loops of 7 steps, each with a piece of 100 MB: 1.4 GB, whatever the number of ranks "
            "nearly 2 × the size. "
            "The bus bandwidth counts these bytes, 14 GB/s; the algorithm bandwidth is 800 MB / 0.1 "
            "s = 8 GB/s."
        ),
    ),
    Question(
        key="q2",
        text=("A step all-reduces 500 tensors of 4 KB each over 64 ranks, one by one. What makes that much faster?"),
        options={
            "a": "Putting the tensors into one large one and reducing that: far fewer steps.",
            "b": "A link of twice the bandwidth.",
            "c": "Sending them as bfloat16: half the bytes.",
            "d": "More ranks: each then sends a smaller piece.",
        },
        right="6bfe90f614600bd9",
        why=(
            "Pieces of 64 bytes cost their latency alone: 500 × 126 steps of alpha. Bandwidth and "
            "fewer bytes touch the "
            "other term, more ranks add steps. One tensor of 2 MB takes 126 steps in all; DDP's "
            "buckets do this."
        ),
    ),
    Question(
        key="q3",
        text="Every rank calls `dist.send(x, right)` and then `dist.recv(y, left)`. What does that do?",
        options={
            "a": "It always works: a send returns at once.",
            "b": "It works if the number of ranks is even.",
            "c": "It gives garbage in `y`, because nothing waits.",
            "d": "It can wait for ever: each send waits for a recv that no rank has reached yet.",
        },
        right="5562c812b57cccf4",
        why=(
            "A blocking send may return only when the other side takes the data, and all ranks are "
            "still in their send. "
            "`isend` before `recv`, `batch_isend_irecv`, or even ranks sending first while odd ones "
            "receive breaks the circle."
        ),
    ),
)
NUDGES = {
    "q1": ("count the steps of both loops and the bytes of one piece; which bytes does the bus bandwidth count?"),
    "q2": "compare alpha with the time that one piece of 4 KB / 64 takes on the wire.",
    "q3": "ask what a send waits for, and where the rank beside it stands at that moment.",
}

QUIZ = make_quiz(LESSON, QUESTIONS, NUDGES)

EXERCISES: list[Exercise] = [
    BROADCAST,
    ALL_GATHER,
    REDUCE_SCATTER,
    RING_ALL_REDUCE,
    FIT_ALPHA_BETA,
    RING_SECONDS,
    BUS_BANDWIDTH,
    QUIZ,
]
