"""The pictures: their words carry the numbers, they stay small, and nothing global is touched."""

import io
import subprocess
import sys

import pytest
import torch
import torch.distributed as dist
from PIL import Image

import rankzero
from rankzero import draw
from rankzero.observe.observation import Message, Observation


def message(rank, index, kind, peer=None, n_bytes=2048, issued=0.0, done=0.001, ranks=3):
    return Message(rank, index, kind, tuple(range(ranks)), peer, n_bytes, n_bytes, (512,), "float32", issued, done)


def ring(ranks=3, rounds=2):
    messages = [
        message(
            rank, number, "send", (rank + 1) % ranks, issued=0.002 * number, done=0.002 * number + 0.001, ranks=ranks
        )
        for rank in range(ranks)
        for number in range(rounds)
    ]
    return Observation(ranks, [None] * ranks, messages)


PICTURES = (draw.heat_map, draw.timeline, draw.steps)


def test_the_words_carry_the_numbers():
    seen = ring()
    assert "rank 2 sent 4 KiB to rank 0" in draw.heat_map(seen).alt
    assert "round 2: 0 to 1 (2 KiB), 1 to 2 (2 KiB), 2 to 0 (2 KiB)" in draw.steps(seen).alt
    assert "rank 1 made 2 × send in 3 ms" in draw.timeline(seen).alt
    told = draw.predicted_against_measured([8, 1024], [2e-5, 3e-4], [2.5e-5, 3e-4]).alt
    assert "8 B: 20 µs measured, 25 µs predicted" in told


@pytest.mark.parametrize("picture", PICTURES)
@pytest.mark.parametrize("ranks", [2, 8])
def test_pictures_are_small_and_real(picture, ranks):
    made = picture(ring(ranks, rounds=20))
    assert len(made.png) < 100_000
    width, height = Image.open(io.BytesIO(made.png)).size
    assert width > 300
    assert height > 200


@pytest.mark.parametrize("picture", PICTURES)
@pytest.mark.parametrize("messages", [[], [message(0, 0, "recv", 1, done=None)], [message(0, 0, "barrier", n_bytes=0)]])
def test_odd_observations_draw_too(picture, messages):
    assert picture(Observation(3, [None] * 3, messages)).png


def test_a_real_run_draws_from_its_observation():
    def body():
        dist.all_reduce(torch.ones(1024))
        dist.barrier()

    seen = rankzero.watch(body, ranks=2)
    assert "rank 0 sent 4 KiB to rank 1" in seen.heat_map().alt
    assert "1 × all_reduce and 1 × barrier" in seen.timeline().alt
    assert "0 rounds" in seen.steps().alt


def test_a_picture_shows_itself_with_its_words_escaped(tmp_path):
    picture = draw.heat_map(ring())
    picture.alt = "it's <b>"
    assert "alt='it&#x27;s &lt;b&gt;'" in picture._repr_html_()
    picture.save(tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")


def test_matplotlibs_global_state_is_left_alone():
    script = (
        "import sys\nfrom rankzero import draw\nfrom rankzero.observe.observation import Observation\n"
        "draw.timeline(Observation(2, [None] * 2))\nprint('matplotlib.pyplot' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.strip() == "False", done.stderr


@pytest.mark.parametrize(
    ("n_bytes", "words"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (2**20, "1 MiB"), (3 * 2**30, "3 GiB")]
)
def test_sizes_in_words(n_bytes, words):
    assert draw.style.size_words(n_bytes) == words


def test_bars_carry_the_bytes_in_their_words():
    held = {
        "stage 0": [{"weights": 4096, "gradients": 4096}] * 2,
        "stage 3": [{"weights": 2048, "gradients": 1024}, {"weights": 2048, "gradients": 2048}],
    }
    stack = draw.memory_by_rank(held)
    assert "stage 0: 8 KiB on the fullest of 2 ranks (weights 4 KiB, gradients 4 KiB)" in stack.alt
    assert "stage 3: 4 KiB on the fullest of 2 ranks" in stack.alt
    pairs = draw.measured_and_theory(["stage 2"], [3 * 2**20], [2**20], "bytes that a rank sends")
    assert pairs.alt == "Bytes that a rank sends. stage 2: 3 MiB measured, 1 MiB in theory."
    for picture in (stack, pairs, draw.memory_by_rank({}), draw.measured_and_theory([], [], [], "nothing")):
        assert 0 < len(picture.png) < 100_000


def test_a_send_is_a_round_later_than_what_its_rank_has_received():
    chain = [
        message(0, 0, "send", 1, issued=0.000, done=0.001),
        message(1, 0, "recv", 0, issued=0.000, done=0.001),
        message(1, 1, "send", 2, issued=0.002, done=0.003),
        message(2, 0, "recv", 1, issued=0.000, done=0.003),
    ]
    alt = draw.steps(Observation(3, [None] * 3, chain)).alt
    assert "in 2 rounds. round 1: 0 to 1 (2 KiB); round 2: 1 to 2 (2 KiB)." in alt


class TestMemory:
    def step(self):
        from rankzero.observe.step import PURPOSES, Sample, StepMemory

        def sample(moment, **mebibytes):
            sizes = dict.fromkeys(PURPOSES, 0) | {"weights": 2**20}
            return Sample("aten", moment, sizes | {name: size * 2**20 for name, size in mebibytes.items()})

        return StepMemory(
            [sample("forward", activations=3), sample("backward", gradients=1, activations=2), sample("backward")]
        )

    def test_the_stack_tells_the_peak_of_each_moment(self):
        picture = self.step().stack()
        assert "forward up to 4 MiB (weights 1 MiB, activations 3 MiB)" in picture.alt
        assert "backward up to 4 MiB (weights 1 MiB, gradients 1 MiB, activations 2 MiB)" in picture.alt
        assert "optimizer" not in picture.alt
        assert "The peak is in forward" in picture.alt
        assert len(picture.png) < 40_000

    def test_bars_tell_parts_totals_and_limits(self):
        runs = {"small": {"weights": 2**30, "gradients": 2**29}, "large": {"weights": 2**31, "new part": 2**30}}
        picture = draw.bytes_by_part(runs, {"card": 2 * 2**30})
        assert "small: 1.5 GiB (weights 1 GiB, gradients 512 MiB)" in picture.alt
        assert "large: 3 GiB (weights 2 GiB, new part 1 GiB)" in picture.alt
        assert "card has 2 GiB" in picture.alt
        assert len(picture.png) < 40_000

    def test_nothing_to_draw_is_no_error(self):
        from rankzero.observe.step import StepMemory

        assert "nothing ran" in draw.memory_stack(StepMemory()).alt
        assert draw.bytes_by_part({}).alt
