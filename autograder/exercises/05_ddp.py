"""Lesson 05, data parallelism by hand: its exercises in order, and the quiz."""

from __future__ import annotations

from autograder.exercise import Exercise
from autograder.exercises.ddp_buckets import MAKE_BUCKETS
from autograder.exercises.ddp_deadline import GPUS_FOR_DEADLINE
from autograder.exercises.ddp_replicas import AVERAGE_GRADIENTS, BROADCAST_STATE
from autograder.exercises.ddp_samples import EPOCH_INDICES
from autograder.exercises.ddp_wrapper import HAND_DDP

LESSON = "05_ddp"

EXERCISES: list[Exercise] = [
    EPOCH_INDICES,
    BROADCAST_STATE,
    AVERAGE_GRADIENTS,
    MAKE_BUCKETS,
    HAND_DDP,
    GPUS_FOR_DEADLINE,
]
