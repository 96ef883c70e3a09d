"""AdamW on one process, right or with a known bad habit: what sharded training must equal, or may equal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor


@dataclass(frozen=True)
class Settings:
    """AdamW's settings for one parameter."""

    lr: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.01


@dataclass(frozen=True)
class Habit:
    """How an AdamW may go wrong. The default is AdamW itself."""

    cause: str = ""
    decay: str = "decoupled"  # or "l2", "none", "twice"
    bias_correction: bool = True
    counter: str = "each"  # or "shared" by all parameters, or "behind" by one
    none_is_zero: bool = False
    first_settings_for_all: bool = False
    constant_lr: bool = False
    last_gradient: bool = False
    eps_in_root: bool = False


#: What an update has to be, where nothing more can be told about a wrong one.
UPDATE = "AdamW's update is p *= 1 − lr · weight_decay, then p −= lr · m̂ / (√v̂ + eps), with m̂ and v̂ bias-corrected."
#: Wrong habits, from the most telling to the most general, with the sentence for the learner.
HABITS = (
    Habit("The weights are not decayed: `weight_decay` is lost on the way.", decay="none"),
    Habit(
        "The decay goes through the gradient, as in Adam with L2. AdamW decays the weights themselves: "
        "`p *= 1 - lr * weight_decay`.",
        decay="l2",
    ),
    Habit("The weights are decayed twice in each step.", decay="twice"),
    Habit("The bias correction is missing: divide by 1 − beta**t, with t counted from 1.", bias_correction=False),
    Habit(
        "The step counter runs too fast: one counter is raised for every parameter or piece, not once in a step.",
        counter="shared",
    ),
    Habit("The step counter is one behind: the first step is t = 1, not 0.", counter="behind"),
    Habit(
        "A parameter without a gradient is treated as if its gradient were zero. AdamW leaves it alone: "
        "no decay, and its states stay.",
        none_is_zero=True,
    ),
    Habit(
        "The settings of the first group are used for all: each group of `param_groups` has its own.",
        first_settings_for_all=True,
    ),
    Habit(
        "A change of the learning rate does not arrive: read `lr` from `param_groups` in every step.",
        constant_lr=True,
    ),
    Habit("Each step uses the gradient of the step before it.", last_gradient=True),
    Habit("eps stands inside the root; AdamW adds it after the root.", eps_in_root=True),
)


class AdamW:
    """AdamW in double precision on a list of weights, each with its settings."""

    def __init__(self, weights: Sequence[Tensor], settings: Sequence[Settings], habit: Habit | None = None):
        self.habit = habit or Habit()
        self.weights = [weight.detach().double().clone() for weight in weights]
        self.settings = list(settings)
        if self.habit.first_settings_for_all:
            self.settings = [self.settings[0]] * len(self.settings)
        self._moments = [(torch.zeros_like(weight), torch.zeros_like(weight)) for weight in self.weights]
        self._steps = [0] * len(self.weights)
        self._before: list[Tensor | None] | None = None

    def step(self, gradients: Sequence[Tensor | None], lr_factor: float = 1.0) -> None:
        """One step; a weight whose gradient is None is left alone."""
        if self.habit.last_gradient:
            gradients, self._before = self._before or [None] * len(self.weights), list(gradients)
        for place, gradient in enumerate(gradients):
            if gradient is None and self.habit.none_is_zero:
                gradient = torch.zeros_like(self.weights[place])
            if gradient is not None:
                factor = 1.0 if self.habit.constant_lr else lr_factor
                settings = self.settings[place]
                self._update(place, gradient.double(), replace(settings, lr=settings.lr * factor))

    def _update(self, place: int, gradient: Tensor, settings: Settings) -> None:
        habit, weight = self.habit, self.weights[place]
        if habit.counter == "shared":
            self._steps = [count + 1 for count in self._steps]
        else:
            self._steps[place] += 1
        count = self._steps[place] if habit.counter != "behind" else max(self._steps[place] - 1, 1)
        times = {"decoupled": 1, "twice": 2}.get(habit.decay, 0)
        weight *= (1 - settings.lr * settings.weight_decay) ** times
        if habit.decay == "l2":
            gradient = gradient + settings.weight_decay * weight
        first, second = self._moments[place]
        beta1, beta2 = settings.betas
        first.mul_(beta1).add_((1 - beta1) * gradient)
        second.mul_(beta2).add_((1 - beta2) * gradient.square())
        corrected = habit.bias_correction
        mean = first / (1 - beta1**count if corrected else 1.0)
        square = second / (1 - beta2**count if corrected else 1.0)
        root = (square + settings.eps).sqrt() if habit.eps_in_root else square.sqrt() + settings.eps
        weight -= settings.lr * mean / root
