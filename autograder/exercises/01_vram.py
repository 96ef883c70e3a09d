"""Lesson 01, where the memory goes: its exercises in order, and the quiz."""

from __future__ import annotations

from autograder.exercise import Exercise, Question
from autograder.exercises.batches import LARGEST_MICRO_BATCH
from autograder.exercises.common import make_quiz
from autograder.exercises.counting import COUNT_PARAMETERS
from autograder.exercises.kept import ACTIVATION_BYTES
from autograder.exercises.logits import LOGITS_BYTES
from autograder.exercises.peaks import MEASURED_PEAK
from autograder.exercises.states import STATE_BYTES

LESSON = "01_vram"

QUESTIONS = (
    Question(
        key="q1",
        text=(
            "A model with 7 billion parameters is fully trained in bf16 with AdamW and an fp32 master copy. How much "
            "do weights, gradients and optimizer states take, before any activation?"
        ),
        options={
            "a": "14 GB: two bytes per parameter.",
            "b": "56 GB: weights, gradients and two moments in bf16.",
            "c": "84 GB: two bytes each for weights and gradients, eight for the two fp32 moments.",
            "d": "112 GB: sixteen bytes per parameter, twelve of them with the optimizer.",
        },
        right="7ff43c60f3c7a9db",
        why=(
            "2 + 2 + 4 + 4 + 4 = 16 bytes per parameter, 112 GB. 56 GB is pure bf16, where the moments are bf16 too "
            "and there is no master copy; 84 GB forgets the master copy."
        ),
    ),
    Question(
        key="q2",
        text=(
            "You change a run from full fine-tuning to LoRA and keep everything else: no checkpointing, the same "
            "micro-batch. What happens to the activations?"
        ),
        options={
            "a": "They shrink a little: frozen linear layers keep no input; the gradient still flows through all else.",
            "b": "They vanish: autograd keeps nothing for a frozen layer, and nearly all layers are frozen now.",
            "c": "They shrink as the trained parameters do, to less than a hundredth.",
            "d": "They double, since each adapter keeps what its layer keeps.",
        },
        right="d5fba58ef0c9461a",
        why=(
            "The gradient has to reach the adapters of the first block, through everything above it: norms, attention "
            "and the MLP's products keep what they kept. What LoRA saves are gradients and optimizer states."
        ),
    ),
    Question(
        key="q3",
        text=(
            "Llama 3 8B has a vocabulary of 128,256. One micro-batch of 8,192 tokens, a loss without fused kernels. "
            "What do the logits cost at the peak of the loss, and what does checkpointing the blocks change in that?"
        ),
        options={
            "a": "2.1 GB; checkpointing removes it, since each block's logits are made again in backward.",
            "b": "14.7 GB; checkpointing the blocks changes nothing in it.",
            "c": "4.2 GB; checkpointing halves it.",
            "d": "0.3 GB; too little to count.",
        },
        right="80af1d33a6ecf782",
        why=(
            "14 bytes × 128,256 × 8,192 = 14.7 GB. The logits come after the last block, so checkpointing the blocks "
            "does not touch them; a loss that is fused or cut into chunks does."
        ),
    ),
)
NUDGES = {
    "q1": "write down all five copies that mixed-precision AdamW keeps of each parameter, with their bytes.",
    "q2": "follow the gradient from the loss to the adapter in the first block: what does it need on its way?",
    "q3": "count bytes per logit at the peak of the loss; then ask which tensors checkpointing a block drops.",
}

QUIZ = make_quiz(LESSON, QUESTIONS, NUDGES)

EXERCISES: list[Exercise] = [
    MEASURED_PEAK,
    COUNT_PARAMETERS,
    STATE_BYTES,
    ACTIVATION_BYTES,
    LOGITS_BYTES,
    LARGEST_MICRO_BATCH,
    QUIZ,
]
