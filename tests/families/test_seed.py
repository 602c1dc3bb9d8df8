"""Where a call's seed comes from: for a GPU it is computed on the host, as torch's kernel would
draw it, and passed as a number."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from unittest import mock

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from gelu_kernels import _C
from gelu_kernels.triton_kernels import seed as triton_seed
from tests.backends.same_bits import Build, check, each_family, every
from tests.calls import CORE_CALLS, DTYPES, Call, normal
from tests.cases import each
from tests.new_process import python
from tests.ptx_on_cpu import cuda

TAKE_A_SEED = [call for call in CORE_CALLS if "seed" in call.tensors]

# The seed of a generator's state


def philox_10(counter: tuple[int, ...], key: tuple[int, int]) -> list[int]:
    c, (k0, k1) = counter, key
    for _ in range(10):
        p0, p2 = c[0] * 0xD2511F53, c[2] * 0xCD9E8D57
        c = p2 >> 32 ^ c[1] ^ k0, p2 % 2**32, p0 >> 32 ^ c[3] ^ k1, p0 % 2**32
        k0, k1 = (k0 + 0x9E3779B9) % 2**32, (k1 + 0xBB67AE85) % 2**32
    return list(c)


PI = (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344)
KNOWN_ANSWERS = [  # counter, key and words of Random123's kat_vectors
    ((0,) * 4, (0, 0), [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
    ((2**32 - 1,) * 4, (2**32 - 1,) * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
    (PI, (0xA4093822, 0x299F31D0), [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1]),
]


@each(answer=KNOWN_ANSWERS)
def test_known_answers(answer: tuple) -> None:
    counter, key, words = answer
    assert philox_10(counter, key) == words


def expected_seed(generator_seed: int, offset: int) -> int:
    """By the documentation of cuRAND, and torch's modulus."""
    counter = offset // 4 % 2**32, offset // 4 >> 32, 0, 0
    high, low, *_ = philox_10(counter, (generator_seed % 2**32, generator_seed >> 32))
    return (high << 32 | low) % (2**63 - 1)


def states() -> Iterator[tuple[int, int]]:
    """Seeds and offsets of generators."""
    numbers = random.Random(0)
    for bits in (0, 1, 16, 32, 33, 48, 64):
        for _ in range(20):
            yield numbers.getrandbits(bits), numbers.getrandbits(bits) // 4 * 4
    yield from ((2**64 - 1, 2**64 - 4), (67280421310721, 0), (67280421310721, 2**34))


def test_the_seed_of_a_state() -> None:
    for state in states():
        assert _C.seed_of_state(*state) == expected_seed(*state), state


def test_numbers_that_a_gpu_printed() -> None:
    """After manual_seed(0) torch.rand takes the first word of each of its threads, which count in
    the third word of the counter (github.com/pytorch/pytorch/issues/47347)."""
    words = [philox_10((0, 0, thread, 0), (0, 0))[0] for thread in range(5)]
    assert [round(word / 2**32, 4) for word in words] == [0.3990, 0.5167, 0.0249, 0.9401, 0.9459]


# Who draws it

PROLOGUE = """
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from gelu_kernels import _C
from tests import fake_gpu

class Mode(TorchDispatchMode):
    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        return op(*args, **(kwargs or {}))

def by_operator(**call):
    drawn = fake_gpu.draw(**call)
    assert not drawn.resets_rnn
    if drawn.by_operator:
        assert drawn.offset == 8  # which torch's kernel advances
    else:
        assert (drawn.seed, drawn.offset) == (_C.seed_of_state(5, 8), 12)
    return drawn.by_operator

assert by_operator()  # loads torch's kernel
"""

knows_captures = pytest.mark.skipif(
    not hasattr(torch.Stream, "is_capturing"), reason="this torch knows no stream's capture"
)

DRAWS = """
assert not by_operator()
assert not by_operator(wants_gradient=True)
with torch.no_grad(), torch.inference_mode():
    assert not by_operator()
torch.set_autocast_enabled("cuda", True)
assert not by_operator()
torch.set_autocast_enabled("cuda", False)

# The first on a device loads torch's kernel; a generator is asked on its device.
assert [by_operator(device=1) for _ in range(3)] == [True, False, False]
assert not by_operator()

fake_gpu.capture(True)
assert by_operator() and by_operator(wants_gradient=True)
fake_gpu.capture(False)
assert not by_operator()
"""

OPERATORS = """
assert by_operator(is_subclass=True)
with Mode():
    assert by_operator()

found = []
def function(x):
    found.append(by_operator())
    return x.sum()

x = torch.ones(3)
torch.func.grad(function)(x)
torch.func.jvp(function, (x,), (x,))
torch.vmap(function, randomness="same")(x[None])
torch.func.functionalize(function)(x)
assert found == [True] * 4, found
"""


@knows_captures
def test_the_host_draws_outside_of_a_capture() -> None:
    python(PROLOGUE + DRAWS)


def test_the_operator_draws_where_it_is_seen() -> None:
    """By what traces, transforms or saves operators."""
    python(PROLOGUE + OPERATORS)


# What takes it


@contextmanager
def seeds_of_the_cpu(backend: str) -> Iterator[None]:
    """Where all tensors are on the CPU, a seed is taken as if the others were on a GPU."""
    if backend == "cuda_ptx":
        with cuda.seeds_by_value():
            yield
    elif backend == "triton_ptx":
        with mock.patch.object(triton_seed, "is_by_value", lambda *_: True):
            yield
    else:
        yield


def with_seed_of_cpu(call: Call, dtype: torch.dtype, *shape: int) -> Build:
    made = call.inputs(shape, lambda *s: 2 * normal(*s, dtype=dtype))

    def build(device: str) -> list[Tensor]:
        named = dict(zip(call.tensors, made, strict=True))
        return [t if name == "seed" else t.to(device) for name, t in named.items()]

    return build


SHAPES = (64, 512), (9, 34), (5,)  # rows of vectors, rows of others, and less than an octet


@each_family(
    product(TAKE_A_SEED, DTYPES, SHAPES),
    every,
    # Each is a kernel to compile, and all take a minute.
    lambda call, dtype, shape: dtype == torch.bfloat16 and shape != (9, 34),
)
def test_kernels_take_a_seed_of_the_cpu(backend: str, cases: list[tuple]) -> None:
    with seeds_of_the_cpu(backend):
        check(
            backend,
            (
                (call, call.gates[0], with_seed_of_cpu(call, dtype, *shape), (dtype, shape))
                for call, dtype, shape in cases
            ),
        )


@each(call=TAKE_A_SEED, device=["meta", "cuda"])
def test_tensors_without_data_take_a_seed_of_the_cpu(call: Call, device: str) -> None:
    with FakeTensorMode():
        made = call.inputs((4, 8), lambda *s: torch.ones(s, device=device))
        given = dict(zip(call.tensors, made, strict=True))
        given["seed"] = torch.tensor(1)
        assert all(t.device.type == device for t in call(*given.values()))
