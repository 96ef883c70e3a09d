"""Ranks on NVIDIA GPUs; skipped where there is none."""

import pytest
import torch
import torch.distributed as dist

import rankzero
from rankzero.ranks.start import gpu_count

pytestmark = pytest.mark.gpu


@pytest.mark.skipif(gpu_count() < 1, reason="needs an NVIDIA GPU")
@pytest.mark.parametrize("ranks", [1, 2])
def test_auto_gives_each_rank_a_gpu_and_nccl_where_there_are_enough(ranks):
    def body():
        device = "cuda" if dist.get_world_size() <= torch.cuda.device_count() else "cpu"
        total = torch.ones(4, device=device) * (dist.get_rank() + 1)
        dist.all_reduce(total)
        return total.sum().item(), dist.get_backend()

    results = rankzero.run(body, ranks=ranks, timeout=90)
    assert [total for total, _ in results] == [4.0 * sum(range(1, ranks + 1))] * ranks
    assert all(("nccl" in backend) == (ranks <= gpu_count()) for _, backend in results)


@pytest.mark.skipif(gpu_count() < 1, reason="needs an NVIDIA GPU")
def test_the_owner_may_have_used_cuda_before():
    torch.ones(1, device="cuda")
    assert rankzero.run(lambda: torch.ones(2, device="cuda").sum().item(), ranks=1, timeout=90) == [2.0]
