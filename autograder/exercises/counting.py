"""Exercise count_parameters: six families, to the parameter; a wrong count is told by what it is off by."""

from __future__ import annotations

import random
from itertools import combinations
from types import SimpleNamespace
from typing import Any

from autograder import compare
from autograder.exercise import Case, Exercise, Judgement
from autograder.exercises.common import as_number
from rankzero.observe.observation import Observation
from rankzero.vram.parameters import count_parameters

LESSON = "01_vram"

PLAIN = "embedding, blocks, norms, head"
SHAPES = "grouped queries, head_dim, tied embeddings"
BIASES = "biases, and the norms of Qwen 3"
GEMMA = "Gemma and Gemma 2"


def drive_count(answers: SimpleNamespace, inputs: dict[str, Any]) -> Any:
    return [as_number(answers.count_parameters(dict(config))) for config in inputs["configs"]]


# -- on the judge's side ----------------------------------------------------------------------------------

SMALL = {
    "model_type": "llama",
    "vocab_size": 100,
    "hidden_size": 8,
    "intermediate_size": 20,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "tie_word_embeddings": False,
    "attention_bias": False,
}
LLAMA_2_7B = SMALL | {"vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32}
LLAMA_2_7B |= {"num_attention_heads": 32, "num_key_value_heads": 32}


def _config(family: str, *sizes: int, tied: bool, **more: Any) -> dict[str, Any]:
    """A configuration with the keys that this family's ``config.json`` has."""
    keys = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
    config = {"model_type": family, **dict(zip((*keys, "num_key_value_heads"), sizes, strict=True))}
    config["tie_word_embeddings"] = tied
    if family in ("llama", "qwen3", "gemma", "gemma2"):
        config["attention_bias"] = False
    return config | more


#: As published. Llama 3.2 and Qwen 3 state a head_dim; Qwen 3's is not hidden_size / heads.
LLAMA_32_1B = _config("llama", 128256, 2048, 8192, 16, 32, 8, tied=True, head_dim=64)
MISTRAL_7B = _config("mistral", 32000, 4096, 14336, 32, 32, 8, tied=False)
QWEN2_HALF_B = _config("qwen2", 151936, 896, 4864, 24, 14, 2, tied=True)
QWEN3_06B = _config("qwen3", 151936, 1024, 3072, 28, 16, 8, tied=True, head_dim=128)
GEMMA_2B = _config("gemma", 256000, 2048, 16384, 18, 8, 1, tied=True, head_dim=256)
GEMMA2_2B = _config("gemma2", 256000, 2304, 9216, 26, 8, 4, tied=True, head_dim=256)


def count_cases(rng: random.Random) -> list[Case]:
    def case(name: str, judgement: str, *configs: dict[str, Any], hidden: bool = False) -> Case:
        return Case(name, [{"configs": list(configs)}], (judgement,), hidden=hidden)

    def drawn(family: str, square: bool = False, **more: Any) -> dict[str, Any]:
        kv_heads, group = rng.choice([1, 2, 4]), rng.choice([2, 3, 4])
        heads = kv_heads * group
        head_dim = rng.choice([16, 32, 64])
        sizes = (rng.randint(300, 9000), heads * head_dim, rng.randint(100, 2000), rng.randint(1, 9), heads)
        config = _config(family, *sizes, heads if square else kv_heads, tied=rng.random() < 0.5) | more
        if not square and family not in ("mistral", "qwen2"):
            config["head_dim"] = head_dim * rng.choice([1, 2])
        return config

    biased = {"attention_bias": True}
    return [
        case("a Llama to count by hand", PLAIN, SMALL),
        case("Llama 2 7B", PLAIN, LLAMA_2_7B),
        case("Mistral 7B: grouped queries", SHAPES, MISTRAL_7B),
        case("Llama 3.2 1B: tied embeddings", SHAPES, LLAMA_32_1B),
        case("a Llama with a head_dim of its own", SHAPES, SMALL | {"head_dim": 6}),
        case("a Llama with attention_bias", BIASES, SMALL | biased, MISTRAL_7B),
        case("Qwen 2.5 0.5B: biases of q, k and v", BIASES, QWEN2_HALF_B),
        case("Qwen 3 0.6B: norms of q and k", BIASES, QWEN3_06B),
        case("Gemma 2B", GEMMA, GEMMA_2B),
        case("Gemma 2 2B: four norms per block", GEMMA, GEMMA2_2B),
        case("other square Llamas", PLAIN, *(drawn("llama", square=True) for _ in range(4)), hidden=True),
        case("other Llamas and Mistrals", SHAPES, *(drawn(one) for one in ("llama", "mistral") * 4), hidden=True),
        case(
            "other models with biases and norms",
            BIASES,
            *(drawn(one) for one in ("qwen2", "qwen3") * 3),
            *(drawn(one, **biased) for one in ("llama", "qwen3")),
            hidden=True,
        ),
        case(
            "other Gemmas",
            GEMMA,
            *(drawn(one) for one in ("gemma", "gemma2") * 3),
            drawn("gemma2", **biased),
            hidden=True,
        ),
    ]


def _count(case: Case, seen: Observation) -> str | None:
    for config, got in zip(case.inputs[0]["configs"], seen.results[0], strict=True):
        if type(got) is not float:
            hint = " Is a `return` missing?" if got is None else ""
            return f"It returned {compare.describe(got)}; a whole number was expected.{hint}"
        right = count_parameters(config)
        if got != right:
            cause = _cause(config, round(got - right), got / right)
            if case.hidden:
                return f"A {config['model_type']} model is counted wrong. {cause}".strip()
            shown = f"{got:,.0f}" if got == round(got) else f"{got:g}"
            return f"It counted {shown}; this {config['model_type']} model has {right:,} parameters. {cause}".strip()
    return None


def _cause(config: dict[str, Any], off_by: int, ratio: float) -> str:
    """What the difference is made of: one usual slip, or two."""
    if ratio in (2.0, 4.0):
        return "Is that bytes? The number of parameters was asked for."
    if 0 < ratio < 1e-5:
        return "Is that in millions or billions? The number itself was asked for."
    causes = {difference: say for difference, say in reversed(_slips(config)) if difference}
    if off_by in causes:
        return causes[off_by]
    for one, other in combinations(causes, 2):
        if one + other == off_by:
            return f"{causes[one]} And: {causes[other]}"
    return ""


def _slips(c: dict[str, Any]) -> list[tuple[int, str]]:
    """Usual slips: what each adds to the count of this model, and what to say. The likelier come first."""
    hidden, ffn, layers, vocab = (
        c[key] for key in ("hidden_size", "intermediate_size", "num_hidden_layers", "vocab_size")
    )
    heads, kv_heads, family = c["num_attention_heads"], c["num_key_value_heads"], c["model_type"]
    head_dim = c.get("head_dim") or hidden // heads
    query, key = heads * head_dim, kv_heads * head_dim
    asked = bool(c.get("attention_bias"))
    embedding = vocab * hidden

    def instead(**changes: Any) -> int:
        return count_parameters(c | changes) - count_parameters(c)

    if asked:
        slips = [
            (-layers * (query + 2 * key + hidden), "`attention_bias` is not counted: q, k, v and o have one each."),
            (-layers * hidden, "With `attention_bias`, o_proj has a bias too, of hidden_size."),
            (layers * (query - hidden), "The bias of o_proj has its outputs' size: hidden_size."),
        ]
    elif family == "qwen2":
        slips = [
            (-layers * (query + 2 * key), "Qwen 2 has biases in q, k and v, though its config does not say so."),
            (layers * hidden, "Qwen 2 has biases in q, k and v only, not in o."),
        ]
    else:
        slips = [
            (layers * (query + 2 * key), f"A {family} model without `attention_bias` has no biases."),
            (layers * (query + 2 * key + hidden), f"A {family} model without `attention_bias` has no biases."),
        ]
    if c["tie_word_embeddings"]:
        slips.append((embedding, "A tied head is the embedding itself: count it once (`tie_word_embeddings`)."))
    else:
        slips.append((-embedding, "The head is missing: without `tie_word_embeddings` it is a matrix of its own."))
    slips += [
        (-embedding * (1 if c["tie_word_embeddings"] else 2), "Embedding and head are missing."),
        (instead(head_dim=hidden // heads) if hidden % heads == 0 else 0,
         "`head_dim`, where it is stated, need not be hidden_size / num_attention_heads."),
        (instead(num_key_value_heads=heads),
         "Keys and values have only `num_key_value_heads` heads: k_proj and v_proj are narrower than q_proj."),
        (-layers * hidden * ffn, "The gated MLP has three matrices: gate, up and down."),
        (-hidden, "The norm behind the last block is missing."),
        (-hidden * (2 * layers + 1), "The norms are missing: two per block, and one behind the last."),
        (-2 * layers * hidden, "Each block has two norms more than that."
         if family != "gemma2" else "Gemma 2 has four norms per block, not two."),
        (-layers * hidden, "Each block has one norm more than that."),
        (2 * layers * hidden, "That is two norms per block too many: only Gemma 2 has four."),
        (-layers * 2 * head_dim, "Qwen 3 norms queries and keys: two weights of `head_dim` per block."),
        (layers * 2 * head_dim, "Only Qwen 3 norms queries and keys."),
        (layers * (query + key - 2 * head_dim),
         "The norms of queries and keys are shared by the heads: `head_dim` weights each."),
        (-layers * hidden * query, "The output projection o_proj is missing."),
        (layers * hidden * (hidden - query),
         "o_proj leads from num_attention_heads · head_dim to hidden_size; these two need not be equal."),
    ]  # fmt: skip
    return slips


COUNT_PARAMETERS = Exercise(
    id="count_parameters",
    lesson=LESSON,
    names=("count_parameters",),
    judgements=tuple(Judgement(name, 1, _count) for name in (PLAIN, SHAPES, BIASES, GEMMA)),
    cases=count_cases,
    drive=drive_count,
    process_group=False,
)
