"""What is alive, what autograd keeps, and what a step's bytes are for."""

import gc

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

import rankzero
from rankzero.observe.memory import MemoryMeter

KIB = 1024


@pytest.fixture
def live():
    """Bytes alive beyond those that were alive when the test began."""
    gc.collect()
    before = rankzero.live_bytes()
    return lambda: rankzero.live_bytes() - before


class Peak(TorchDispatchMode):
    """What a learner writes, and the meter of watched ranks beside it."""

    def __init__(self):
        super().__init__()
        self.peak, self.meter = 0, MemoryMeter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.meter.before(func, args, kwargs or {})
        out = func(*args, **(kwargs or {}))
        self.meter.after(out)
        self.peak = max(self.peak, rankzero.live_bytes())
        return out


class TestLiveBytes:
    def test_storages_count_once_and_as_long_as_anything_stands_on_them(self, live):
        x = torch.zeros(256, KIB)
        view = x.t()[3:]
        assert live() == 2**20
        del x
        assert live() == 2**20
        del view
        assert live() == 0

    @pytest.mark.parametrize(("dtype", "size"), [(torch.bool, 1), (torch.bfloat16, 2), (torch.float64, 8)])
    def test_bytes_not_elements(self, live, dtype, size):
        kept = torch.zeros(KIB, dtype=dtype)
        assert live() == kept.nbytes == KIB * size

    def test_a_resized_storage_has_its_new_size(self, live):
        x = torch.zeros(KIB)
        assert live() == 4 * KIB
        x.untyped_storage().resize_(0)
        assert live() == 0

    def test_gradients_count_though_python_never_held_them(self, live):
        weight = torch.ones(KIB, requires_grad=True)
        weight.square().sum().backward()
        assert live() == 8 * KIB

    @pytest.mark.parametrize("trained", [True, False])
    def test_another_storage_under_an_old_parameter_is_seen(self, live, trained):
        layer = nn.Linear(KIB, 1, bias=False).requires_grad_(trained)
        gc.collect()
        assert live() == 4 * KIB
        gc.collect()
        layer.double()
        assert live() == 8 * KIB

    def test_tensors_survive_any_number_of_collections(self, live):
        kept = [torch.zeros(KIB) for _ in range(3)]
        for _ in range(4):
            gc.collect()
            kept.append(torch.zeros(KIB))
        assert live() == 7 * 4 * KIB

    def test_what_has_no_cpu_memory_costs_nothing(self, live):
        from torch._subclasses import FakeTensorMode

        with FakeTensorMode():
            fake = torch.zeros(KIB)
        others = [fake, torch.zeros(KIB, device="meta"), torch.eye(4).to_sparse()]
        assert live() <= 512
        assert len(others) == 3

    def test_asked_after_every_operator_it_is_the_meter(self):
        model = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.LayerNorm(128), nn.Linear(128, 8))
        optimizer = torch.optim.AdamW(model.parameters())
        x = torch.randn(32, 64)
        before = rankzero.live_bytes()
        with Peak() as look:
            F.cross_entropy(model(x), torch.zeros(32, dtype=torch.long)).backward()
            optimizer.step()
        assert look.peak - before == pytest.approx(look.meter.peak_bytes, rel=0.01)


class TestSavedTensors:
    def test_each_storage_once_with_where_it_comes_from(self):
        w = torch.ones(10, 100, requires_grad=True)
        table = rankzero.saved_tensors(lambda t: (t.exp() * 2).sin().view(-1).cos(), w)
        assert [(row.source, row.shape, row.bytes) for row in table] == [
            ("exp", (10, 100), 4000),
            ("mul", (10, 100), 4000),
            ("sin", (1000,), 4000),
        ]
        assert table.total_bytes == 12_000

    def test_parameters_and_buffers_are_left_out_also_through_views_and_closures(self):
        model = nn.Sequential(nn.Linear(8, 8, bias=False), nn.BatchNorm1d(8), nn.Linear(8, 8, bias=False))
        model.eval()
        x = torch.randn(4, 8, requires_grad=True)
        direct, closed = rankzero.saved_tensors(model, x), rankzero.saved_tensors(lambda t: model(t), x)
        assert direct.total_bytes == closed.total_bytes
        assert direct.left_out_bytes >= 4 * 128
        assert all(row.bytes <= 128 for row in direct)

    def test_inputs_are_listed_and_paths_are_those_of_the_modules(self):
        model = nn.Sequential(nn.Linear(8, 4), nn.Sequential(nn.SiLU()))
        table = rankzero.saved_tensors(model, torch.randn(2, 8))
        assert [(row.inside, row.source) for row in table] == [("0", "input"), ("1.0", "addmm")]

    def test_checkpointed_only_the_input_is_kept(self):
        def block(t):
            return t.sin().cos().exp()

        w = torch.ones(1000, requires_grad=True)
        plain = rankzero.saved_tensors(block, w * 1)
        again = rankzero.saved_tensors(lambda t: checkpoint(block, t, use_reentrant=False), w * 1)
        assert (plain.total_bytes, again.total_bytes) == (12_000, 4_000)

    def test_it_can_be_read_as_text_and_as_html_and_goes_on_to_backward(self):
        w = torch.ones(3, 5, requires_grad=True)
        table = rankzero.saved_tensors(torch.exp, w)
        assert "exp      3 × 5  float32     60" in str(table)
        assert "1 storage, 60 bytes" in str(table)
        assert "<td>3 × 5</td>" in table._repr_html_()
        table.result.sum().backward()
        assert w.grad.shape == (3, 5)

    def test_hooks_are_gone_when_the_function_raises(self):
        def fails(_):
            raise ValueError("no")

        with pytest.raises(ValueError, match="no"):
            rankzero.saved_tensors(fails, torch.ones(1))
        from torch.nn.modules import module

        assert not module._global_forward_pre_hooks


class TestWatchStep:
    def run(self, checkpointing=False):
        torch.manual_seed(0)
        model = nn.Sequential(*(nn.Sequential(nn.Linear(64, 64), nn.Tanh()) for _ in range(4)))
        optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
        x = torch.randn(128, 64)

        def step():
            y = x
            for block in model:
                y = checkpoint(block, y, use_reentrant=False) if checkpointing else block(y)
            y.square().mean().backward()
            optimizer.step()
            return "done"

        return rankzero.watch_step(step, model, optimizer), 4 * (64 * 64 + 64) * 4

    def test_bytes_by_purpose(self):
        seen, weights = self.run()
        last = seen.samples[-1].bytes
        assert last["weights"] == last["gradients"] == weights
        assert 2 * weights <= last["optimizer states"] <= 2 * weights + 64  # and a counter for each
        assert seen.result == "done"
        # Each tanh keeps its output, which is also the next layer's input.
        at_end = max(sample.bytes["activations"] for sample in seen.samples)
        assert at_end == pytest.approx(4 * 128 * 64 * 4, rel=0.3)

    def test_moments_come_in_order_and_the_peak_is_the_largest_sample(self):
        seen, weights = self.run()
        moments = [sample.moment for sample in seen.samples]
        assert moments == sorted(moments, key=["forward", "backward", "optimizer step"].index)
        assert seen.peak.total == max(seen.peak_of(moment).total for moment in set(moments))
        # foreach AdamW takes all square roots at once: five copies of the weights.
        assert seen.peak.moment == "optimizer step"
        assert seen.peak.total >= 5 * weights

    def test_checkpointed_blocks_count_when_they_run_again(self):
        model = nn.Sequential(*(nn.Sequential(nn.Linear(8, 8), *(nn.Tanh() for _ in range(9))) for _ in range(4)))
        x = torch.randn(512, 8)
        unit = x.nbytes

        def step(checkpointing):
            y = x
            for block in model:
                y = checkpoint(block, y, use_reentrant=False) if checkpointing else block(y)
            y.sum().backward()

        plain, again = (
            max(sample.bytes["activations"] for sample in rankzero.watch_step(lambda way=way: step(way), model).samples)
            for way in (False, True)
        )
        assert plain == pytest.approx(36 * unit, rel=0.1)
        # Three inputs (the first is the batch), and nine outputs of the block that runs again.
        assert 12 * unit <= again <= 15 * unit
