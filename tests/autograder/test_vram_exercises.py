"""Lesson 01's oracles against what they stand for: the meter, autograd, and transformers' models."""

import random
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F

from autograder.exercises import batches, counting, kept, logits, peaks
from rankzero import live_bytes, saved_tensors
from rankzero.llama import Block, Llama
from rankzero.observe.memory import MemoryMeter
from rankzero.vram.parameters import count_parameters


def metered(function):
    from torch.utils._python_dispatch import TorchDispatchMode

    meter = MemoryMeter()

    class Mode(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            meter.before(func, args, kwargs or {})
            out = func(*args, **(kwargs or {}))
            meter.after(out)
            return out

    with Mode():
        function()
    return meter


@pytest.mark.parametrize("k", [2, 3, 5])
@pytest.mark.parametrize("kind", list(peaks.STEPS))
def test_the_expected_peaks_are_those_of_the_meter(kind, k):
    n = 2**12
    room = SimpleNamespace(device="cpu", keep=[], older=torch.ones(11 * n // 2))
    room.weight = torch.full((n,), 0.5, requires_grad=True)
    meter = metered(lambda: peaks.STEPS[kind](n, k, room))
    units = peaks.units(kind, k)
    assert meter.peak_bytes == pytest.approx(4 * n * units["peak"], abs=64)
    assert meter.live_bytes() == pytest.approx(4 * n * units["end"], abs=64)


def drawn_configs(judgement, seed):
    cases = [case for case in kept.activation_cases(random.Random(seed)) if judgement in case.judgements]
    return [call for case in cases for call in case.inputs[0]["calls"]]


@pytest.mark.parametrize("seed", range(3))
def test_what_blocks_keep_is_what_autograd_keeps(seed):
    for judgement in (kept.SAVED, kept.GROUPED):
        for config, micro_batch, seq_len, checkpointing in drawn_configs(judgement, seed):
            ids = torch.randint(config["vocab_size"], (micro_batch, seq_len))
            live = saved_tensors(Llama(config).bfloat16(), ids).total_bytes
            # To the byte: the formula has every tensor of the list.
            assert kept.true_activation_bytes(config, micro_batch, seq_len, checkpointing) == live


def test_transformers_keeps_as_much():
    transformers = pytest.importorskip("transformers")
    for config, micro_batch, seq_len, _ in drawn_configs(kept.GROUPED, 7):
        model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**config, attn_implementation="sdpa")).bfloat16()
        ids = torch.randint(config["vocab_size"], (micro_batch, seq_len))
        live = saved_tensors(lambda ids, model=model: model(ids, use_cache=False).logits, ids).total_bytes
        assert kept.true_activation_bytes(config, micro_batch, seq_len, False) == pytest.approx(
            live, rel=kept.TOLERANCE
        )


@pytest.mark.parametrize("seed", range(2))
def test_checkpointed_it_is_the_inputs_and_one_block(seed):
    for config, micro_batch, seq_len, _ in drawn_configs(kept.CHECKPOINTED, seed):
        ids = torch.randint(config["vocab_size"], (micro_batch, seq_len))
        x = torch.randn(micro_batch, seq_len, config["hidden_size"], dtype=torch.bfloat16, requires_grad=True)
        model = Llama(config).bfloat16()
        one = saved_tensors(Block(config).bfloat16(), x, model.model._rotation(seq_len, x)).total_bytes
        inputs = [
            row for row in saved_tensors(Llama(config, checkpointing=True).bfloat16(), ids) if row.inside == "model"
        ]
        live = one + x.nbytes * config["num_hidden_layers"]
        assert sum(row.bytes for row in inputs) >= x.nbytes * config["num_hidden_layers"]
        expected = kept.true_activation_bytes(config, micro_batch, seq_len, True)
        assert expected == pytest.approx(live, rel=kept.TOLERANCE)


def test_fourteen_bytes_per_logit():
    def loss():
        made = torch.randn(64, 5000).bfloat16().requires_grad_()
        F.cross_entropy(made.float(), torch.zeros(64, dtype=torch.long)).backward()

    assert metered(loss).peak_bytes == pytest.approx(logits.true_logits_bytes(5000, 1, 64), rel=0.01)


def test_transformers_loss_takes_fourteen_bytes_per_logit_too():
    loss_utils = pytest.importorskip("transformers.loss.loss_utils")
    labels = torch.randint(5000, (1, 64))

    def loss():
        made = torch.randn(1, 64, 5000).bfloat16().requires_grad_()
        loss_utils.ForCausalLMLoss(logits=made, labels=labels, vocab_size=5000).backward()

    assert metered(loss).peak_bytes == pytest.approx(logits.true_logits_bytes(5000, 1, 64), rel=0.01)


@pytest.mark.parametrize("seed", range(5))
def test_every_drawn_configuration_counts_as_the_model_does(seed):
    transformers = pytest.importorskip("transformers")
    for case in counting.count_cases(random.Random(seed)):
        for config in case.inputs[0]["configs"]:
            if config["num_hidden_layers"] > 12:
                continue
            with torch.device("meta"):
                model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(**config))
            model.tie_weights()
            assert count_parameters(config) == sum(weight.numel() for weight in model.parameters()), config


def test_the_largest_micro_batch_is_where_the_next_one_overflows():
    for seed in range(20):
        for case in batches.search_cases(random.Random(seed)):
            for recipe, gpu_bytes in case.inputs[0]["searches"]:
                n = batches.largest(recipe, gpu_bytes)
                assert n == 0 or batches.need(recipe, n) <= gpu_bytes
                assert batches.need(recipe, n + 1) > gpu_bytes


def test_live_bytes_counts_nothing_twice():
    before = live_bytes()
    x = torch.zeros(1000)
    assert live_bytes() - before == x.nbytes == live_bytes() - before
