"""How HandDDP communicates: while backward still runs, once per bucket, and once per optimizer step."""

from __future__ import annotations

from collections import Counter
from typing import Any

from autograder.exercise import Case
from autograder.exercises.common import line_of
from autograder.exercises.ddp_buckets import bytes_of, greedy
from autograder.exercises.ddp_ranks import make_model
from autograder.exercises.ddp_training import BACKWARD_INSIDE
from rankzero.observe.observation import POINT_TO_POINT, Message, Observation

OVERLAP = "the first bucket travels before the last gradient is ready, in every step"
COUNT = "one collective per bucket and step, none in no_sync"

DEFAULT_CAP = 25 * 2**20


def gradients_given(case: Case) -> list[tuple]:
    """Shape and dtype of every parameter that is trained."""
    model = make_model(case.inputs[0]["spec"], 0)
    return [(tuple(p.shape), str(p.dtype).removeprefix("torch.")) for p in model.parameters() if p.requires_grad]


def buckets_of(case: Case) -> int:
    """As many buckets as any right way of filling them makes."""
    given, cap_bytes = gradients_given(case), case.inputs[0]["options"].get("bucket_cap_bytes", DEFAULT_CAP)
    return max(len(greedy(given, cap_bytes, close)) for close in (True, False))


def moves_data(message: Message) -> bool:
    return message.kind != "barrier"


def sent_in_no_sync(case: Case, messages: list[Message], step: dict[str, Any]) -> str:
    """What is wrong, if a rank's step has a collective in a backward that `no_sync` covers; else nothing."""
    for place, backward in enumerate(step["backwards"][:-1]):
        for message in filter(moves_data, messages[slice(*backward["calls"])]):
            cause = "gradients only add up there, and travel once, with the last micro-batch."
            if case.inputs[0]["modes"][place] == BACKWARD_INSIDE:
                cause = "what counts is where backward runs, not forward: ask in the hook."
            return f"a {message.kind} in backward of micro-batch {place + 1}, in `no_sync`{line_of(message)}; {cause}"
    return ""


def sent_too_early(case: Case, messages: list[Message], step: dict[str, Any]) -> str:
    """A cause, if a rank sends a bucket before its gradients can be there; else nothing."""
    given, cap_bytes = gradients_given(case), case.inputs[0]["options"].get("bucket_cap_bytes", DEFAULT_CAP)
    smallest = min(len(bucket) for close in (True, False) for bucket in greedy(given, cap_bytes, close))
    last = step["backwards"][-1]
    for message in filter(moves_data, messages[slice(*last["calls"])]):
        arrived = sum(calls <= message.index for calls in last["ready"])
        if arrived < smallest:
            return (
                f"A bucket is sent{line_of(message)} before its gradients are in `.grad`. A hook of `register_hook` "
                "runs too early for that, one of `register_post_accumulate_grad_hook` does not; and gradients that "
                "come inside `no_sync` do not count."
            )
        return ""
    return ""


def overlap(case: Case, seen: Observation) -> str | None:
    """A sentence if on some rank, in some step, nothing of size is sent before the last gradient is ready."""
    parameters = len(gradients_given(case))
    for rank, result in enumerate(seen.results):
        messages = seen.of_rank(rank)
        for number, step in enumerate(result["steps"]):
            last = step["backwards"][-1]
            begin, end = last["calls"]
            before = messages[begin : last["ready"][-1]] if last["ready"] else []
            # A flag for each parameter is no gradient.
            if any(moves_data(message) and message.bytes > 16 * parameters for message in before):
                continue
            where = f"Rank {rank}, step {number + 1}"
            in_backward, in_finish = messages[begin:end], messages[slice(*step["finish"])]
            if not any(map(moves_data, in_backward)):
                first = next(filter(moves_data, in_finish), None)
                line = line_of(first) if first else ""
                return (
                    f"{where}: no gradient travels during backward; the first goes in `finish()`{line}. "
                    f"{_late_cause(number, result)}"
                )
            return (
                f"{where}: the first bucket is sent only when the last gradient is ready"
                f"{line_of(next(filter(moves_data, in_backward)))}. {_last_cause(in_backward, case)}"
            )
    return None


def _late_cause(number: int, result: dict) -> str:
    if number:
        return "In the step before it was in time: are counts and handles set back for the next step?"
    if len(result["steps"][0]["backwards"]) > 1:
        return "With micro-batches: does the count of a bucket go on from those in `no_sync`?"
    return "Send a bucket from a hook of its last gradient (`register_post_accumulate_grad_hook`)."


def _last_cause(in_backward: list[Message], case: Case) -> str:
    if sum(map(moves_data, in_backward)) == 1:
        return "Is there one bucket only, is `bucket_cap_bytes` left out?"
    return (
        "Gradients come from the back, so the first bucket must hold the last parameters; and a bucket goes when its "
        "own gradients are there."
    )


def count(case: Case, seen: Observation) -> str | None:
    """A sentence if there are more collectives, or more bytes, than the buckets need."""
    given, buckets = gradients_given(case), buckets_of(case)
    largest = max(map(bytes_of, given))
    cap_bytes = case.inputs[0]["options"].get("bucket_cap_bytes", DEFAULT_CAP)
    once = 2 * (case.ranks - 1) / case.ranks * sum(map(bytes_of, given))
    for rank, result in enumerate(seen.results):
        messages = seen.of_rank(rank)
        for number, step in enumerate(result["steps"]):
            where = f"Rank {rank}, step {number + 1}"
            if cause := sent_in_no_sync(case, messages, step):
                return f"{where}: {cause}"
            last = step["backwards"][-1]["calls"]
            sent = [*messages[slice(*last)], *messages[slice(*step["finish"])]]
            sent = list(filter(moves_data, sent))
            kinds = Counter(message.kind for message in sent if message.kind not in POINT_TO_POINT)
            pairs = max(kinds.pop("reduce_scatter", 0), kinds.pop("all_gather", 0))
            collectives = sum(kinds.values()) + pairs
            total = sum(message.sent_bytes for message in sent)
            if collectives > buckets + 1:
                return (
                    f"{where}: {collectives} collectives for {buckets} bucket{'s' * (buckets > 1)}. "
                    f"{_too_many(collectives, len(given), total / once)}"
                )
            if total > 1.03 * once + 256 * (buckets + 1):
                return (
                    f"{where}: {total / once:.2g} times the bytes that the gradients need. Does something travel "
                    "twice, in a wider dtype, or as a whole where the mean is built from pieces?"
                )
            if total < 0.97 * once and "idle" not in case.inputs[0]["spec"]:
                return (
                    f"{where}: fewer bytes travel than the gradients have: in a narrower dtype, or around "
                    "`torch.distributed`?"
                )
            widest = max((message.bytes for message in sent), default=0)
            if widest > max(cap_bytes, largest) + 16 * len(given):
                return (
                    f"{where}: a collective of {widest} bytes, though a bucket may have {cap_bytes}: is "
                    "`bucket_cap_bytes` left out?"
                )
    return None


def _too_many(collectives: int, parameters: int, share: float) -> str:
    if share > 1.5:
        return "Every bucket travels twice: is it sent from the hook and again in `finish()`?"
    if collectives in (parameters, parameters + 1):
        return "Does every parameter travel alone? A bucket is one flat tensor, and one call."
    return "One flat tensor and one all-reduce per bucket, and at most one more to say who used what."
