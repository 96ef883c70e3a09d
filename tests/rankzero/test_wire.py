"""The plain data format and the framing: what goes in comes out, and what is foreign comes out harmless."""

import math
import pickle

import pytest
import torch

from rankzero.ranks import wire
from rankzero.ranks.channel import ChannelFault, Parser, pack


def round_trip(value):
    return wire.decode(*wire.encode(value))


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        0,
        -(2**70),
        1.5,
        math.inf,
        "text",
        [],
        [1, "a", None],
        (1, (2, 3)),
        {"a": 1, 2: [3.0]},
        range(3, 10, 2),
    ],
)
def test_plain_values_come_back_as_they_were(value):
    back = round_trip(value)
    assert back == value
    assert type(back) is type(value)


def test_nan_comes_back():
    assert math.isnan(round_trip(math.nan))


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.bool, torch.complex64]
)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3), (2, 0, 3)])
def test_tensors_come_back(dtype, shape):
    tensor = torch.ones(shape).mul(3).to(dtype)
    back = round_trip(tensor)
    assert back.dtype == dtype
    assert back.shape == tensor.shape
    assert torch.equal(back, tensor)


def test_views_and_parameters_come_back_as_plain_tensors():
    column = torch.arange(12.0).reshape(3, 4)[:, 1]
    assert torch.equal(round_trip(column), column)
    assert type(round_trip(torch.nn.Parameter(torch.ones(2)))) is torch.Tensor


class Equal(int):
    """Says that it equals everything."""

    def __eq__(self, other):
        return True

    __hash__ = int.__hash__


class Liar(torch.Tensor):
    """A tensor that answers every function with ones."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return torch.ones(3)


def test_objects_that_lie_are_opaque_or_taken_at_their_bytes():
    assert round_trip([Equal(3)]) == [wire.Opaque(f"{__name__}.Equal")]
    liar = torch.zeros(3).as_subclass(Liar)
    assert round_trip(liar).tolist() == [0.0, 0.0, 0.0]


def test_other_objects_are_opaque():
    assert round_trip({"a": {1, 2}}) == {"a": wire.Opaque("set")}
    assert round_trip(torch.ones(2, device="meta")).type_name.startswith("torch.Tensor")


def test_endless_nesting_is_cut():
    nested = []
    nested.append(nested)
    assert "too deep" in repr(round_trip(nested))


@pytest.mark.parametrize(
    "tree",
    [
        None,
        1,
        {},
        {"x": 1},
        {"t": "load", "s": [1], "b": 0},
        {"t": "float32", "s": [1], "b": 7},
        {"t": "float32", "s": [9], "b": 0},
        {"v": [1]},
        {"d": [[{"l": []}, {"v": 1}]]},
        {"f": "nonsense"},
        {"l": 3},
    ],
)
def test_what_is_no_plain_data_is_refused(tree):
    with pytest.raises(ValueError):
        wire.decode(tree, [b"\0\0\0\0"])


def test_decoding_never_unpickles(tmp_path):
    class Bomb:
        def __reduce__(self):
            return open, (str(tmp_path / "exploded"), "w")

    with pytest.raises(ValueError):
        wire.decode({"t": "float32", "s": [3], "b": 0}, [pickle.dumps(Bomb())])
    assert not (tmp_path / "exploded").exists()


@pytest.mark.parametrize("cut", [1, 3, 7, 1000])
def test_messages_survive_any_cutting_of_the_stream(cut):
    stream = pack({"a": 1}, b"xyz", b"") + pack({"b": [2]})
    parser = Parser()
    messages = [message for at in range(0, len(stream), cut) for message in parser.feed(stream[at : at + cut])]
    assert messages == [({"a": 1}, [b"xyz", b""]), ({"b": [2]}, [])]


@pytest.mark.parametrize("stream", [b"\xff" * 64, b"\0\0\0\x02\0\0\0\0{]", b"\0\0\0\x01\0\0\0\x001"])
def test_streams_that_are_no_messages_are_refused(stream):
    with pytest.raises(ChannelFault):
        Parser(max_bytes=1000).feed(stream)


def test_a_message_beyond_the_limit_is_refused_before_it_has_come():
    with pytest.raises(ChannelFault, match="beyond the limit"):
        Parser(max_bytes=1000).feed(pack({}, b"x" * 2000)[:40])
