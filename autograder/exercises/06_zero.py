"""Lesson 06, ZeRO from scratch: its exercises in order, and the quiz."""

from __future__ import annotations

from autograder.exercise import Exercise, Question
from autograder.exercises.common import make_quiz
from autograder.exercises.zero_clip import CLIP
from autograder.exercises.zero_gradients import ZERO2
from autograder.exercises.zero_module import ZERO3
from autograder.exercises.zero_optimizer import ZERO1
from autograder.exercises.zero_pieces import FLATTEN_PAD, ZERO_BYTES
from autograder.exercises.zero_reshard import RESHARD

LESSON = "06_zero"

QUESTIONS = (
    Question(
        key="q1",
        text=(
            "A model of 8 billion parameters is trained with mixed-precision AdamW on 8 cards of 80 GB. "
            "Activations need 20 GB per card. Which is the lowest ZeRO stage that fits?"
        ),
        options={"a": "Stage 0", "b": "Stage 1", "c": "Stage 2", "d": "Stage 3"},
        right="af79cf6eb5e20081",
        why=(
            "Stage 0 needs 128 GB, stage 1 32 + 12 = 44 GB: with activations 64 GB of 80. Stages 2 and 3 "
            "would save more, but a lower stage has less that can go wrong."
        ),
    ),
    Question(
        key="q2",
        text=(
            "In plain data parallelism each rank sends 2(n−1)/n times the gradients' size per step. In units of "
            "(n−1)/n: how much is it at stages 1, 2 and 3, if each does no more than it must?"
        ),
        options={
            "a": "2, 2 and 2 times: sharding costs no traffic.",
            "b": "2, 2 and 3 times: stage 3 gathers the weights once more, for backward.",
            "c": "1, 2 and 3 times: each stage adds one collective.",
            "d": "3, 2 and 1 times: what is sharded needs not travel.",
        },
        right="31c366f6bae17ad9",
        why=(
            "A reduce-scatter of gradients and an all-gather of weights are together the bytes of an all-reduce. "
            "Stage 3 gathers the weights twice, for forward and for backward, and reduces the gradients: 3."
        ),
    ),
    Question(
        key="q3",
        text=(
            "Your stage 3 sets `parameter.data` to an empty tensor after each block's forward, but the memory is "
            "not freed. Who holds the weights?"
        ),
        options={
            "a": "The process group: gloo keeps what it has received.",
            "b": "Nobody: Python frees memory only when the process ends.",
            "c": "The optimizer: it needs whole weights for its update.",
            "d": "Autograd: the graph has saved a view of them for backward.",
        },
        right="5a143bffd0cdbaae",
        why=(
            "A linear layer saves its weight (transposed, a view) to compute the gradient of its input. The memory "
            "goes when nothing refers to it: so hand autograd a note instead, empty the storage, or compute the "
            "block again."
        ),
    ),
)
NUDGES = {
    "q1": "write 2 + 2 + 12 bytes per parameter in a column for each stage, and add the activations.",
    "q2": "which two collectives make an all-reduce? And how often does stage 3 need the whole weights in a step?",
    "q3": "who needs the weights once more after forward, and must have noted them somewhere?",
}

QUIZ = make_quiz(LESSON, QUESTIONS, NUDGES)

EXERCISES: list[Exercise] = [ZERO_BYTES, FLATTEN_PAD, ZERO1, ZERO2, ZERO3, CLIP, RESHARD, QUIZ]
