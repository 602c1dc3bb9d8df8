"""The masks of the SOI map: the bits of the stated scheme, and the statistics they must have."""

import math

import numpy as np
import torch
from torch import Tensor

from gelu_kernels import _C, reference
from tests.calls import GATES
from tests.cases import each
from tests.oracles import oracle, soi_oracle

ops = torch.ops.gelu_kernels

SEEDS = [0, 1, 2**31, 2**32, 0x0123456789ABCDEF, 2**63 - 1, -1]


def seed_of(number: int, device: str = "cpu") -> Tensor:
    return torch.tensor(number, device=device)


def bits(x: float, n: int, seed: int, gate: str = "normal") -> np.ndarray:
    """n draws of the mask for one x."""
    x = torch.tensor(x, dtype=torch.bfloat16).expand(n)
    return soi_oracle.unpack(ops.soi_forward(x, None, seed_of(seed), gate)[1], n)


# The scheme


PI = [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344]
KNOWN_ANSWERS = [  # counter, key and words of Random123's kat_vectors
    ([0] * 4, (0, 0), [0x5F6FB709, 0x0D893F64, 0x4F121F81, 0x4F730A48]),
    ([2**32 - 1] * 4, (2**32 - 1,) * 2, [0x5207DDC2, 0x45165E59, 0x4D8EE751, 0x8C52F662]),
    (PI, (0xA4093822, 0x299F31D0), [0x4DFCCABA, 0x190A87F0, 0xC47362BA, 0xB6B5242A]),
]


@each(answer=KNOWN_ANSWERS)
def test_known_answers(answer: tuple) -> None:
    """The oracle's generator gives Random123's words."""
    counter, key, words = answer
    assert soi_oracle.philox(np.array([counter], dtype=np.uint64), key).tolist() == [words]


@each(element=range(8))
def test_known_answers_of_the_kernels(element: int, device: str) -> None:
    """Random123's words for counter 0 and key 0 are the upper halves of the first octet's words.
    Here all elements have one place in the whole tensor, and so one word. The thresholds of many x
    that it passes or fails tell its first 17 bits, one more than the upper half."""
    x = torch.linspace(-1, 0, 2**16)
    _, mask = ops.soi_forward(x.to(device), None, seed_of(0, device), "normal", element, 1, 0)
    m = soi_oracle.unpack(mask, len(x)).astype(bool)
    thresholds = _C.soi_thresholds(x, "normal").numpy()
    upper = [0xB709, 0x5F6F, 0x3F64, 0x0D89, 0x1F81, 0x4F12, 0x0A48, 0x4F73][element]
    word = int(soi_oracle.words(0, np.array([element]))[0])
    assert word >> 16 == upper
    assert np.array_equal(m, word < thresholds)
    if 0.16 * 2**32 < word < 2**31:
        assert thresholds[m].min() - thresholds[~m].max() < 2**15


@each(gate=GATES)
def test_the_second_half_decides_where_the_first_leaves_it_open(gate: str, device: str) -> None:
    """Of 2^21 elements, some 30 have a first half that is the upper half of their threshold."""
    x = torch.randn(2**21, device=device)
    y, mask = ops.soi_forward(x, None, seed_of(12, device), gate)
    m = soi_oracle.kept(x, None, 12, gate)
    thresholds = _C.soi_thresholds(x.cpu(), gate).numpy().astype(np.uint64)
    first = soi_oracle.words_of(12, len(x)) >> np.uint64(16)
    upper = np.where(x.cpu() > 0, 0xFFFF - first, first)
    is_open = upper == thresholds >> np.uint64(16)
    assert is_open.sum() > 10
    assert 0 < m.numpy()[is_open].sum() < is_open.sum()
    assert torch.equal(mask, soi_oracle.pack(m).to(device))
    assert torch.equal(y, soi_oracle.select(m, x))


@each(seed=SEEDS, gate=GATES)
def test_the_scheme(seed: int, gate: str, device: str) -> None:
    x = torch.randn(3, 333, device=device) * 2
    bias = torch.randn(333, device=device)
    for b in (None, bias):
        results = ops.soi_forward(x, b, seed_of(seed, device), gate)
        assert all(map(torch.equal, results, soi_oracle.expected(x, b, seed, gate)))


@each(dim=[0, 1, 2])
def test_the_pieces_of_a_tensor_draw_what_the_whole_does(dim: int, device: str) -> None:
    x = torch.randn(6, 10, 14, device=device)
    seed = seed_of(3, device)
    whole, _ = ops.soi_forward(x, None, seed, "normal")
    inner = math.prod(x.shape[dim + 1 :])
    at = 0
    for piece in x.tensor_split([1, 4], dim):
        place = at * inner, piece.size(dim) * inner, x.size(dim) * inner
        y, _ = ops.soi_forward(piece, None, seed, "normal", *place)
        assert torch.equal(y, whole.narrow(dim, at, piece.size(dim)))
        at += piece.size(dim)


# Probabilities


def probabilities(gate: str, x: Tensor) -> np.ndarray:
    return soi_oracle.kept_words(x, gate) / 2.0**32


@each(gate=GATES)
def test_probabilities(gate: str) -> None:
    """For every bfloat16 and between them."""
    every = oracle.every_16_bit_input(torch.bfloat16)
    for x in (every[every.isfinite() & (every > 0)], torch.linspace(2**-17, 8, 2**19)):
        numbers = x.double().numpy()
        tail = oracle.reference(gate, oracle.VALUE, -numbers) / -numbers  # F(-x) = 1 - F(x)
        near = numbers < 4
        for found in (probabilities(gate, -x), 1 - probabilities(gate, x)):
            error = np.abs(found - tail)
            assert error.max() <= 2e-6
            assert (error[near] / tail[near]).max() <= 2e-5
    zeros = torch.tensor([0.0, -0.0])
    assert np.abs(probabilities(gate, zeros) - 0.5).max() <= 2e-6


@each(gate=GATES)
def test_the_thresholds_are_those_of_the_masks(gate: str) -> None:
    """Of every bfloat16, by 64 draws each: together they detect thresholds 2^-20 away."""
    x = oracle.every_16_bit_input(torch.bfloat16).repeat(64)
    _, mask = ops.soi_forward(x, None, seed_of(17), gate)
    assert torch.equal(mask, soi_oracle.expected(x, None, 17, gate)[1])


# Statistics of the CPU's masks, which are every backend's. The seeds are fixed: a test passes
# always or never.

DRAWS = 2**26


@each(
    lambda x, gate: gate != GATES[0],
    x=[-4.0, -2.0, -0.75, -0.1, 0.0, 0.1, 1.0, 3.0],
    gate=GATES,
)
def test_frequencies(x: float, gate: str) -> None:
    p = float(oracle.exact(gate, oracle.VALUE, x) / x) if x else 0.5
    frequency = int(bits(x, DRAWS, 1, gate).sum(dtype=np.int64)) / DRAWS
    assert abs(frequency - p) < 4 * math.sqrt(p * (1 - p) / DRAWS) + 2e-6


def correlation(a: np.ndarray, b: np.ndarray) -> float:
    a, b = a.astype(np.float32) * 2 - 1, b.astype(np.float32) * 2 - 1
    return float(np.mean(a * b, dtype=np.float64))


N = 2**22
BOUND = 4.5 / math.sqrt(N)


@each(lag=[1, 2, 3, 4, 5, 7, 8, 16, 31, 32, 64, 127, 128, 1024, 4096, 65536])
def test_elements_are_independent(lag: int) -> None:
    """Neighbours in a row, and in a column of rows of that length."""
    m = bits(0.0, N + lag, 2)
    assert abs(correlation(m[:-lag], m[lag:])) < BOUND


@each(step=[1, 2, 3, 4, 2**16, 2**31, 2**32, 2**33, 2**62])
def test_seeds_are_independent(step: int) -> None:
    assert abs(correlation(bits(0.0, N, 1), bits(0.0, N, 1 + step))) < BOUND


def test_rare_events_are_independent() -> None:
    """The neighbours of a rare draw are kept as often as any other element."""
    m = bits(-2.0, 2**25, 4)
    p = float(oracle.exact("normal", oracle.VALUE, -2.0) / -2)
    for lag in range(1, 9):
        after = m[lag:][m[:-lag] == 1]
        assert abs(after.mean() - p) < 4.5 * math.sqrt(p * (1 - p) / len(after))


@each(gate=GATES)
def test_mean_and_variance(gate: str) -> None:
    """The result has the mean g(x) and the variance x^2 F (1 - F)."""
    draws = 2**18
    x = torch.linspace(-3, 3, 25)
    y, _ = ops.soi_forward(x.expand(draws, 25), None, seed_of(6), gate)
    x, y = x.double(), y.double()
    mean = getattr(reference, gate)(x)
    f = torch.where(x == 0, 0.5, mean / x)
    variance = x**2 * f * (1 - f)
    standard_error = (variance / draws).sqrt()
    assert ((y.mean(0) - mean).abs() <= 4.5 * standard_error + 1e-9).all()
    # The variance of a sample variance of x m is x^4 F (1 - F) (1 - 2 F)^2 / n and terms in 1/n^2.
    spread = (x**4 * f * (1 - f) * ((1 - 2 * f) ** 2 + 4 / draws) / draws).sqrt()
    assert ((y.var(0) - variance).abs() <= 4.5 * spread + 1e-5).all()
