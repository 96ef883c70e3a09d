"""Exercise activation_bytes: what a Llama's forward leaves behind for its backward."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

from autograder.exercise import Case, Exercise, Judgement
from autograder.exercises.common import as_number
from autograder.exercises.formulas import Slip, formula_case, formula_verdict
from rankzero.observe.observation import Observation
from rankzero.vram.activations import block
from rankzero.vram.model import load_model
from rankzero.vram.run import Run

LESSON = "01_vram"

SAVED = "all blocks, saved for backward"
GROUPED = "grouped queries and head_dim"
CHECKPOINTED = "checkpointing: the blocks' inputs and one block"
#: How far an answer may be from what autograd keeps.
TOLERANCE = 0.03
_BF16 = 2


def drive_activations(answers: SimpleNamespace, inputs: dict[str, Any]) -> Any:
    return [as_number(answers.activation_bytes(dict(config), *rest)) for config, *rest in inputs["calls"]]


# -- on the judge's side ----------------------------------------------------------------------------------


def per_token(config: dict[str, Any]) -> dict[str, float]:
    """What one token costs in a bf16 Llama with SDPA, in bytes: a block, a block's input, the final norm."""
    saved = block(load_model(config), Run(method="full", precision="bf16_pure")).saved_bytes
    hidden = config["hidden_size"]
    # The final norm keeps fp32 x, one number, and bf16 x; the head keeps its input. The embedding keeps the ids.
    return {"block": saved, "input": _BF16 * hidden, "end": 8 * hidden + 4, "ids": 8}


def true_activation_bytes(config: dict[str, Any], micro_batch: int, seq_len: int, checkpointing: bool) -> float:
    """Distinct storages that autograd keeps between token ids and logits; checkpointed, at the recomputed block."""
    one, layers, tokens = per_token(config), config["num_hidden_layers"], micro_batch * seq_len
    if checkpointing:
        return tokens * (layers * one["input"] + one["block"])
    head_dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    angles = 2 * _BF16 * head_dim * seq_len
    return tokens * (layers * one["block"] + one["end"] + one["ids"]) + angles


def _with_the_end(config: dict[str, Any], micro_batch: int, seq_len: int, checkpointing: bool) -> float:
    """The same where the final norm's tensors are counted beside the recomputed block: an upper bound that is fine."""
    more = per_token(config)["end"] * micro_batch * seq_len if checkpointing else 0
    return true_activation_bytes(config, micro_batch, seq_len, checkpointing) + more


def activation_cases(rng: random.Random) -> list[Case]:
    def config(square: bool = False) -> dict[str, Any]:
        kv_heads, group = rng.choice([1, 2, 4]), rng.choice([2, 4])
        heads = kv_heads * group
        hidden = rng.choice([256, 384])
        made = {
            "model_type": "llama",
            "vocab_size": rng.randint(500, 3000),
            "hidden_size": hidden,
            "intermediate_size": rng.randrange(hidden, 4 * hidden, 32),
            "num_hidden_layers": rng.randint(2, 8),
            "num_attention_heads": heads,
            "num_key_value_heads": heads if square else kv_heads,
            "tie_word_embeddings": rng.random() < 0.5,
        }
        if not square and rng.random() < 0.5:
            made["head_dim"] = hidden // heads * 3 // 2
        return made

    def calls(count: int, checkpointing: bool, square: bool = False) -> list[tuple]:
        return [(config(square), rng.randint(2, 4), rng.randrange(64, 256, 8), checkpointing) for _ in range(count)]

    def case(name: str, calls: list[tuple], judgement: str, hidden: bool = False) -> Case:
        # Time enough for an answer that runs a block and looks.
        return formula_case(name, calls, judgement, hidden=hidden, deadline_seconds=15.0)

    plain = {
        "model_type": "llama",
        "vocab_size": 1000,
        "hidden_size": 256,
        "intermediate_size": 688,
        "num_hidden_layers": 5,
        "num_attention_heads": 8,
        "num_key_value_heads": 8,
        "tie_word_embeddings": False,
    }
    narrow = plain | {"num_key_value_heads": 2}
    larger = plain | {"hidden_size": 512, "intermediate_size": 1376, "num_hidden_layers": 9}
    wide = plain | {"num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 96}
    return [
        case("5 blocks of 256", [(plain, 3, 64, False)], SAVED),
        case("9 blocks of 512", [(larger, 1, 200, False)], SAVED),
        case("2 of 8 heads for keys and values", [(narrow, 1, 128, False)], GROUPED),
        case("a head_dim of its own", [(wide, 2, 64, False)], GROUPED),
        case("5 blocks of 256, checkpointed", [(plain, 3, 64, True)], CHECKPOINTED),
        case("9 blocks of 512, checkpointed", [(larger, 1, 200, True)], CHECKPOINTED),
        case("other sizes", calls(4, False, square=True), SAVED, hidden=True),
        case("other heads", calls(4, False), GROUPED, hidden=True),
        case("other sizes, checkpointed", calls(4, True), CHECKPOINTED, hidden=True),
    ]


def _slip(formula, checkpointed: bool | None, say: str) -> Slip:
    """A wrong formula of (config, tokens, per-token bytes, seq_len), for runs with or without checkpointing."""

    def slip(config: dict[str, Any], micro_batch: int, seq_len: int, checkpointing: bool) -> float:
        if checkpointed is not None and checkpointing != checkpointed:
            return float("nan")
        return formula(config, micro_batch * seq_len, per_token(config), seq_len)

    return slip, say


_WIDE_NORM = "A norm computes in fp32 and keeps x so, 4 bytes each, beside the bf16 value: look at the list again."


def _saved_slips() -> list[Slip]:
    """Usual slips, of runs without checkpointing."""

    def as_is(c, tokens, one):
        return tokens * (c["num_hidden_layers"] * one["block"] + one["end"])

    def norms(c):
        return 2 * c["num_hidden_layers"] + 1

    def less(per_block, say: str) -> Slip:
        """A formula that lacks (or has too much of) something in every block."""
        return _slip(lambda c, t, one, s: as_is(c, t, one) - t * c["num_hidden_layers"] * per_block(c), False, say)

    def other(say: str, **changes) -> Slip:
        return _slip(
            lambda c, t, one, s: as_is(c, t, per_token({**c, **{k: f(c) for k, f in changes.items()}})), False, say
        )

    return [
        _slip(lambda c, t, one, s: t * c["num_hidden_layers"] * one["block"], False,
              "The tensors behind the last block are missing: the final norm's, and the input of the head."),
        _slip(lambda c, t, one, s: t * one["block"], False, "That is one block; there are `num_hidden_layers`."),
        _slip(lambda c, t, one, s: t * (one["block"] + one["end"]), False,
              "That is one block; there are `num_hidden_layers`."),
        other("Keys and values are narrower: `num_key_value_heads` heads of `head_dim`.",
              num_key_value_heads=lambda c: c["num_attention_heads"]),
        other("Queries are `num_attention_heads · head_dim` wide; a stated head_dim need not be hidden / heads.",
              head_dim=lambda c: c["hidden_size"] // c["num_attention_heads"]),
        less(lambda c: 2 * c["intermediate_size"],
             "The MLP keeps four tensors of intermediate_size: gate, silu(gate), up, and their product."),
        less(lambda c: 4 * c["intermediate_size"],
             "The MLP keeps four tensors of intermediate_size: gate, silu(gate), up, and their product."),
        _slip(lambda c, t, one, s: as_is(c, t, one) - 4 * t * c["hidden_size"] * norms(c), False, _WIDE_NORM),
        _slip(lambda c, t, one, s: as_is(c, t, one) - 2 * t * c["hidden_size"] * norms(c), False,
              "Two bytes per hidden value are missing at each norm: its bf16 result before the weight, "
              "or the input of the linear layers behind it."),
        _slip(lambda c, t, one, s: as_is(c, t, one) + 2 * t * c["vocab_size"], False, "The logits are not part of it."),
        _slip(lambda c, t, one, s: as_is(c, t, one) + 4 * t * c["vocab_size"], False, "The logits are not part of it."),
        _slip(lambda c, t, one, s: as_is(c, t, one)
              + 2 * t * c["num_attention_heads"] * s * c["num_hidden_layers"], False,
              "SDPA keeps no seq × seq scores, only one number per token and head."),
        _slip(lambda c, t, one, s: as_is(c, t, one)
              + 4 * t * c["num_attention_heads"] * s * c["num_hidden_layers"], False,
              "SDPA keeps no seq × seq scores, only one number per token and head."),
        _slip(lambda c, t, one, s: 34 * t * c["hidden_size"] * c["num_hidden_layers"], None,
              "34·s·b·h is the rule for GPT with dropout; this block keeps other tensors."),
    ]  # fmt: skip


def _checkpointed_slips() -> list[Slip]:
    """Usual slips, of runs with checkpointing."""
    return [
        _slip(lambda c, t, one, s: t * c["num_hidden_layers"] * one["input"], True,
              "The block that is run again in backward is missing: its tensors are there on top of all inputs."),
        _slip(lambda c, t, one, s: t * (c["num_hidden_layers"] * one["input"] + one["end"]), True,
              "The block that is run again in backward is missing: its tensors are there on top of all inputs."),
        _slip(lambda c, t, one, s: t * (c["num_hidden_layers"] * one["input"] + one["block"] - 8 * c["hidden_size"]),
              True, _WIDE_NORM),
        _slip(lambda c, t, one, s: t * one["block"], True, "Every block's input stays, too: 2 bytes per hidden value."),
        _slip(lambda c, t, one, s: t * (c["num_hidden_layers"] * one["block"] + one["end"]), True,
              "With checkpointing, only the inputs of the blocks stay, and one block at a time is run again."),
        _slip(lambda c, t, one, s: t * c["num_hidden_layers"] * (one["input"] + one["block"]), True,
              "Only one block at a time is run again."),
        _slip(lambda c, t, one, s: t * (2 * c["num_hidden_layers"] * one["input"] + one["block"]), True,
              "A block's input is bf16: 2 bytes per hidden value."),
        _slip(lambda c, t, one, s: t * (one["input"] + one["block"]), True,
              "The input of every block stays, not of one."),
    ]  # fmt: skip


def _about(config: dict[str, Any], micro_batch: int, seq_len: int, checkpointing: bool) -> float:
    """The same without what comes after the last block."""
    more = 0 if checkpointing else per_token(config)["end"] * micro_batch * seq_len
    return true_activation_bytes(config, micro_batch, seq_len, checkpointing) - more


_ALWAYS: list[Slip] = [
    slip
    for right in (true_activation_bytes, _about)
    for slip in (
        (lambda c, b, s, k, right=right: right(c, 1, s, k), "`micro_batch` is not in it: tokens = micro_batch · seq."),
        (lambda c, b, s, k, right=right: right(c, b, 1, k), "`seq_len` is not in it: tokens = micro_batch · seq_len."),
        (lambda *call, right=right: right(*call) / 2**30, "That is in GiB; bytes were asked for."),
        (lambda *call, right=right: right(*call) / 1e9, "That is in GB; bytes were asked for."),
        (lambda *call, right=right: right(*call) / 2, "Is that the number of elements? A bf16 value has 2 bytes."),
        (lambda *call, right=right: right(*call) * 2, "That is fp32; the model computes in bf16."),
        (
            lambda *call, right=right: right(*call) + 2 * load_model(call[0]).parameters,
            "Parameters are not part of it.",
        ),
    )
]


def _activations(case: Case, seen: Observation) -> str | None:
    def words(config: dict[str, Any], micro_batch: int, seq_len: int, checkpointing: bool) -> str:
        how = ", checkpointed" if checkpointing else ""
        return f"{config['num_hidden_layers']} blocks of {config['hidden_size']}, {micro_batch} × {seq_len} tokens{how}"

    slips = [*_ALWAYS, *_saved_slips(), *_checkpointed_slips()]
    slips += [
        (lambda *call, right=right: right(*call) + 2 * load_model(call[0]).parameters, "Parameters are not part of it.")
        for right in (true_activation_bytes, _about)
    ]
    return formula_verdict(case, seen, true_activation_bytes, words, slips, TOLERANCE, also=_with_the_end)


ACTIVATION_BYTES = Exercise(
    id="activation_bytes",
    lesson=LESSON,
    names=("activation_bytes",),
    judgements=(
        Judgement(SAVED, 2, _activations),
        Judgement(GROUPED, 1, _activations),
        Judgement(CHECKPOINTED, 1, _activations),
    ),
    cases=activation_cases,
    drive=drive_activations,
    process_group=False,
)
