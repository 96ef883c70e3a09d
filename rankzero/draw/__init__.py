"""Pictures of what a learner's own ranks did, each with its words for those who cannot see it."""

from rankzero.draw.bars import measured_and_theory, memory_by_rank
from rankzero.draw.memory import bytes_by_part, memory_stack
from rankzero.draw.style import Picture
from rankzero.draw.time import predicted_against_measured, timeline
from rankzero.draw.traffic import heat_map, steps

__all__ = [
    "Picture",
    "bytes_by_part",
    "heat_map",
    "measured_and_theory",
    "memory_by_rank",
    "memory_stack",
    "predicted_against_measured",
    "steps",
    "timeline",
]
