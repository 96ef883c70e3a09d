"""The estimator: parts that add up, moments that make sense, sharding by the book, and refusals in a sentence."""

import json
import subprocess
import sys

import pytest

from rankzero.gpus import GPUS, find_gpu
from rankzero.vram import Run, estimate, load_model
from rankzero.vram.activations import block
from rankzero.vram.catalog import BUILT_IN
from rankzero.vram.fit import largest, remedies, slowdown
from rankzero.vram.run import TARGETS
from rankzero.vram.states import states

GIB = 2**30
RUNS = [
    Run(),
    Run(checkpointing="full", micro_batch=4),
    Run(method="lora", precision="bf16_pure", lora_targets=("q_proj", "o_proj"), lora_dropout=0.1),
    Run(method="qlora", precision="bf16_pure", checkpointing="full"),
    Run(precision="autocast", attention="eager"),
    Run(precision="bf16_pure", optimizer="adamw8bit", optimizer_in_backward=True),
    Run(gpus=8, sharding="fsdp", checkpointing="full"),
    Run(gpus=8, sharding="hybrid", shard_size=4),
    Run(gpus=8, sharding="zero2", optimizer="adamw_fused"),
    Run(gpus=8, sharding="zero3", offload="parameters"),
    Run(gpus=8, sharding="ddp", accumulation=4),
    Run(gpus=8, tensor_parallel=4, sequence_parallel=True, sharding="fsdp", checkpointing="selective"),
]


@pytest.mark.parametrize("name", sorted(BUILT_IN))
@pytest.mark.parametrize("run", RUNS, ids=range(len(RUNS)))
def test_the_parts_add_up_and_the_peak_is_the_largest_moment(name, run):
    if load_model(name).heads % run.tensor_parallel:
        pytest.skip("its heads do not divide")
    result = estimate(name, run)
    assert sum(result.breakdown.values()) == result.device_bytes
    assert result.allocated_bytes < result.reserved_bytes < result.device_bytes
    assert result.phases[result.peak] == max(result.phases.values())
    assert abs(result.phases[result.peak] - result.allocated_bytes) < 100  # rounding of parts
    assert all(size > 0 for size in result.breakdown.values())
    json.dumps(result.json())


def test_mixed_adamw_takes_sixteen_bytes_a_parameter_and_zero_divides_them():
    model = load_model("llama-2-7b")

    def per_parameter(**fields):
        kept = states(model, Run(**fields))
        return [round(part / model.parameters, 3) for part in (kept.weights, kept.gradients, kept.optimizer)]

    assert per_parameter() == [2, 2, 12]
    assert per_parameter(gpus=4, sharding="zero1") == [2, 2, 3]
    assert per_parameter(gpus=4, sharding="zero2") == [2, 0.5, 3]
    assert per_parameter(gpus=4, sharding="zero3") == [0.5, 0.5, 3]
    assert per_parameter(gpus=4, sharding="ddp") == [2, 2, 12]
    assert per_parameter(gpus=8, sharding="hybrid", shard_size=4) == [0.5, 0.5, 3]
    assert per_parameter(precision="fp32") == [4, 4, 8]
    assert per_parameter(precision="bf16_pure") == [2, 2, 4]
    assert per_parameter(precision="bf16_pure", optimizer="adamw8bit") == [2, 2, 2.031]
    assert per_parameter(precision="bf16_pure", optimizer="sgd") == [2, 2, 0]
    assert per_parameter(offload="optimizer") == [2, 2, 0]


def test_frozen_weights_have_neither_gradient_nor_state():
    model = load_model("mistral-7b")
    kept = states(model, Run(method="lora", precision="bf16_pure", lora_rank=16, lora_targets=("q_proj", "v_proj")))
    adapters = 32 * 16 * ((4096 + 4096) + (4096 + 1024))
    assert kept.gradients == 4 * adapters
    assert kept.optimizer == 8 * adapters
    assert kept.weights == 2 * model.parameters + 4 * adapters


def test_nf4_with_double_quantization_takes_half_a_byte_and_a_bit_for_the_matrices_only():
    model = load_model("llama-3-8b")
    kept = states(model, Run(method="qlora", precision="bf16_pure", lora_targets=("q_proj",), lora_rank=1))
    rest = model.parameters - model.linear
    assert kept.weights == pytest.approx(model.linear * 4.127 / 8 + 2 * rest, rel=1e-3)


def test_attention_scores_grow_with_the_square_of_the_length_only_when_eager():
    model = load_model("llama-2-7b")

    def per_token(attention, seq_len):
        return block(model, Run(attention=attention, seq_len=seq_len)).saved["attention"]

    assert per_token("sdpa", 32_768) == per_token("sdpa", 1024)
    assert per_token("eager", 32_768) > 20 * per_token("eager", 1024)


@pytest.mark.parametrize(
    ("more", "less"),
    [
        ({}, {"checkpointing": "full"}),
        ({}, {"checkpointing": "selective"}),
        (
            {"method": "lora", "precision": "bf16_pure", "checkpointing": "selective"},
            {"method": "lora", "precision": "bf16_pure", "checkpointing": "full"},
        ),
        ({"attention": "eager"}, {"attention": "sdpa"}),
        ({}, {"kernels": "fused"}),
        ({"loss": "hf"}, {"loss": "linear"}),
        ({"precision": "fp32"}, {"precision": "bf16_pure"}),
        ({"precision": "bf16_pure"}, {"precision": "bf16_pure", "optimizer": "adamw_fused"}),
        ({"precision": "bf16_pure"}, {"precision": "bf16_pure", "optimizer": "adamw8bit"}),
        ({"precision": "bf16_pure"}, {"precision": "bf16_pure", "optimizer": "paged_adamw"}),
        ({}, {"method": "lora", "precision": "bf16_pure"}),
        ({"method": "lora", "precision": "bf16_pure"}, {"method": "qlora", "precision": "bf16_pure"}),
        ({"gpus": 2, "sharding": "fsdp"}, {"gpus": 4, "sharding": "fsdp"}),
        ({"gpus": 4, "sharding": "zero1"}, {"gpus": 4, "sharding": "zero2"}),
        ({"gpus": 4, "tensor_parallel": 2, "sharding": "ddp"}, {"gpus": 4, "tensor_parallel": 4}),
        (
            {"gpus": 4, "tensor_parallel": 4},
            {"gpus": 4, "tensor_parallel": 4, "sequence_parallel": True},
        ),
    ],
)
def test_what_is_meant_to_save_memory_does(more, less):
    short = {"micro_batch": 1, "seq_len": 512}
    long = {"micro_batch": 4, "seq_len": 4096}
    needs = [
        [estimate("llama-2-7b", Run(**fields, **size)).device_bytes for size in (short, long)]
        for fields in (more, less)
    ]
    assert needs[0][0] >= needs[1][0]
    assert needs[0][1] >= needs[1][1]
    assert needs[0] != needs[1]


@pytest.mark.parametrize("vary", ["micro_batch", "seq_len"])
def test_the_largest_that_fits_fits_and_one_more_does_not(vary):
    model, card = load_model("llama-3.2-1b"), GPUS["rtx4090"]
    run = Run(method="lora", precision="bf16_pure", checkpointing="full", seq_len=512)
    best = largest(model, run, card, vary)
    assert best > 1
    assert estimate(model, run.but(**{vary: best}), card).fits
    assert not estimate(model, run.but(**{vary: best + 1}), card).fits


def test_nothing_fits_a_card_that_is_too_small():
    assert largest(load_model("llama-3-70b"), Run(), GPUS["t4"]) == 0


def test_remedies_fit_and_come_by_what_they_cost():
    model, card, run = load_model("mistral-7b"), GPUS["a100-80gb"], Run(micro_batch=4)
    found = remedies(model, run, card)
    assert found
    assert all(result.fits for _, result in found)
    costs = [slowdown(chosen) for chosen, _ in found]
    assert costs == sorted(costs)
    chosen = [{change.words for change in changes} for changes, _ in found]
    assert not any(one < other for one in chosen for other in chosen), "a set holds another that fits already"


def test_a_card_is_found_by_any_spelling_and_a_wrong_one_names_its_neighbours():
    assert find_gpu("RTX 4090") is GPUS["rtx4090"]
    assert find_gpu("A100 80GB") is GPUS["a100-80gb"]
    with pytest.raises(ValueError, match="h200"):
        find_gpu("h201")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"method": "qlra"}, "method: .*did you mean 'qlora'"),
        ({"micro_batch": 0}, "micro_batch: 0 is not between 1 and"),
        ({"micro_batch": 2.5}, "micro_batch: 2.5 is not a whole number"),
        ({"seq_len": -1}, "seq_len: -1"),
        ({"lora_dropout": 1.5}, "lora_dropout: 1.5"),
        ({"lora_targets": ()}, "lora_targets: at least one"),
        ({"lora_targets": ("q",)}, "lora_targets: 'q' is not known"),
        ({"sharding": "fsdp"}, "sharding: 'fsdp' needs gpus of 2 or more"),
        ({"gpus": 4}, "sharding: 4 replicas of the model need one of"),
        ({"gpus": 4, "sharding": "fsdp", "tensor_parallel": 3}, "tensor_parallel: 3 does not divide gpus = 4"),
        ({"gpus": 4, "sharding": "hybrid", "shard_size": 3}, "shard_size: .*divides 4"),
        ({"sequence_parallel": True}, "sequence_parallel: it needs tensor_parallel"),
        ({"offload": "parameters"}, "offload: 'parameters' needs sharding"),
        (
            {
                "method": "qlora",
                "precision": "bf16_pure",
                "gpus": 2,
                "sharding": "zero3",
                "offload": "optimizer",
                "optimizer": "none",
            },
            "offload: 'optimizer' has nothing to move",
        ),
        ({"method": "qlora", "precision": "fp32"}, "precision: 'fp32' does not go with"),
        ({"optimizer_in_backward": True, "accumulation": 2}, "optimizer_in_backward"),
    ],
)
def test_a_run_that_cannot_be_is_refused_by_field(fields, message):
    with pytest.raises(ValueError, match=message):
        Run(**fields)


def test_tensor_parallelism_has_to_divide_the_heads():
    with pytest.raises(ValueError, match="tensor_parallel: 3 does not divide the 32 attention heads"):
        estimate("llama-2-7b", Run(gpus=3, tensor_parallel=3))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"model_type": "llama", "hidden_size": 64}, "lacks num_attention_heads"),
        ({**BUILT_IN["llama-2-7b"], "model_type": "lama"}, "model_type: 'lama' has no formula here"),
        (
            {**BUILT_IN["llama-2-7b"], "num_key_value_heads": 5},
            "num_key_value_heads: 5 does not divide num_attention_heads = 32",
        ),
        ({**BUILT_IN["llama-2-7b"], "vocab_size": -4}, "vocab_size: -4"),
        ({**BUILT_IN["llama-2-7b"], "hidden_size": "big"}, "hidden_size: 'big'"),
    ],
)
def test_a_config_that_cannot_be_is_refused_by_key(config, message):
    with pytest.raises(ValueError, match=message):
        load_model(config)


def test_a_config_is_read_from_a_file_a_folder_and_a_dict(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(BUILT_IN["qwen3-0.6b"]))
    wanted = load_model("qwen3-0.6b")
    for source in (tmp_path, tmp_path / "config.json", str(tmp_path), BUILT_IN["qwen3-0.6b"]):
        assert load_model(source).parameters == wanted.parameters


@pytest.mark.parametrize(
    ("content", "message"), [("{", "is not JSON"), ("[1]", "holds a list"), ("{}", "lacks model_type")]
)
def test_a_broken_config_file_is_refused(tmp_path, content, message):
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(ValueError, match=message):
        load_model(tmp_path)


@pytest.mark.parametrize("target", sorted(TARGETS))
def test_each_target_adds_adapters(target):
    run = Run(method="lora", precision="bf16_pure", lora_targets=(target,))
    assert load_model("llama-3-8b").adapters(run.targets, 8) > 0


def test_the_estimator_needs_no_torch():
    script = (
        "import sys; from rankzero.vram import Run, estimate; estimate('gpt2', Run()); print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.strip() == "False", done.stderr
