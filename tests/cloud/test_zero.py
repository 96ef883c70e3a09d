"""cloud/zero.py under torchrun, on gloo: with a learner's file, with a notebook, and with half a file."""

import os
import re
import subprocess
import sys

import pytest

from autograder.build import built_path
from autograder.lessons import ROOT, answer_sources

WAYS = [
    "stage 0: AdamW",
    "stage 1: your ShardedAdamW",
    "stage 1: ZeroRedundancyOptimizer",
    "stage 2: your Zero2",
    "stage 2: fully_shard, no reshard",
    "stage 3: your Zero3",
    "stage 3: fully_shard",
]


def run(tmp_path, answers):
    """Two ranks, as `torchrun` starts them, with nothing of this repository to import."""
    script = tmp_path / "zero.py"
    script.write_text((ROOT / "cloud" / "zero.py").read_text(encoding="utf-8"), encoding="utf-8")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(script)]
    command += ["--answers", str(answers), "--width", "160", "--blocks", "3", "--steps", "2"]
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        command, cwd=tmp_path, env={**environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=120
    )
    ways = {line[:34].strip(): line[34:].split() for line in done.stdout.splitlines() if line.startswith("stage ")}
    return done, ways


def sources(*ids):
    return "\n\n".join(answer_sources("06_zero")[one] for one in ids)


def test_a_learners_file_trains_and_is_compared(tmp_path):
    answers = tmp_path / "my_zero.py"
    answers.write_text(sources("flatten_pad", "zero1_adamw", "zero2_gradients", "zero3_module"), encoding="utf-8")
    done, ways = run(tmp_path, answers)
    assert done.returncode == 0, done.stderr[-3000:]
    assert list(ways) == WAYS
    assert "2 ranks, gloo" in done.stdout
    assert len({loss for *_, loss in ways.values()}) == 1
    kept = {name: float(columns[1]) for name, columns in ways.items()}
    assert kept["stage 3: your Zero3"] < kept["stage 1: your ShardedAdamW"] < kept["stage 0: AdamW"]


@pytest.mark.slow
def test_a_notebook_will_do(tmp_path):
    done, ways = run(tmp_path, ROOT / built_path("solutions", "06_zero"))
    assert done.returncode == 0, done.stderr[-3000:]
    assert list(ways) == WAYS


@pytest.mark.slow
def test_what_is_missing_is_left_out_and_another_loss_is_told(tmp_path):
    answers = tmp_path / "my_zero.py"
    wrong = sources("flatten_pad", "zero1_adamw").replace("        self.adamw.step()\n", "        pass\n")
    answers.write_text(wrong, encoding="utf-8")
    done, ways = run(tmp_path, answers)
    assert list(ways) == [name for name in WAYS if not re.search("Zero[23]", name)]
    assert done.returncode != 0
    assert "another loss than stage 0" in done.stderr
