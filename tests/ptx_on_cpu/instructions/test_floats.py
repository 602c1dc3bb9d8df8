"""The machine that executes PTX in the tests: floating point, beside Python's fractions."""

import math
from collections.abc import Callable, Sequence
from fractions import Fraction

import pytest
import torch
from torch import Tensor

from tests import ptx_on_cpu
from tests.ptx_on_cpu.instructions.kernels import DTYPES, evaluate

# Floating point. A result is compared by its value and the sign of zero; a NaN by its bits.

NUMBERS = [0.0, -0.0, 1.0, -1.0, 1.5, 3.0, -7.25, 1e-3, 65504.0, -65519.9, 65520.0, 3e38, -3e38]
NUMBERS += [2**-14, 2**-24, 2**-25, 3 * 2**-25, 1e-38, 1.4e-45, -1.4e-45, 2**-126, 1e-40]
NUMBERS += [math.inf, -math.inf, math.nan, 1 + 2**-11, 1 + 3 * 2**-11, 1 + 2**-8, 1 + 3 * 2**-8]


def floats(dtype: torch.dtype, count: int = 2) -> list[Tensor]:
    values = torch.tensor(NUMBERS, dtype=torch.float64).to(dtype)
    grid = torch.meshgrid([values] * count, indexing="ij")
    return [t.flatten().contiguous() for t in grid]


def rounded(x: Fraction, dtype: torch.dtype) -> float:
    """To nearest, ties to even, by Fraction's own arithmetic; overflow to infinity."""
    precision, least = {
        torch.float64: (53, -1074), torch.float32: (24, -149), torch.float16: (11, -24),
        torch.bfloat16: (8, -133),
    }[dtype]  # fmt: skip
    if x == 0:
        return 0.0
    exponent = (
        math.floor(math.log2(abs(x))) if abs(x) < 2**1000 else abs(x).__floor__().bit_length() - 1
    )
    while abs(x) >= Fraction(2) ** (exponent + 1):
        exponent += 1
    while abs(x) < Fraction(2) ** exponent:
        exponent -= 1
    place = Fraction(2) ** max(exponent - precision + 1, least)
    y = round(x / place) * place
    most = Fraction(torch.finfo(dtype).max)
    if abs(y) > most:
        return math.copysign(math.inf, x)
    return math.copysign(float(y), x)


def assert_floats(found: Tensor, expected: Sequence[float]) -> None:
    e = torch.tensor(expected, dtype=torch.float64)
    is_nan = e.isnan()
    assert torch.equal(found.isnan(), is_nan)
    ints = {8: torch.int64, 4: torch.int32, 2: torch.int16}[found.itemsize]
    assert (found[is_nan].view(ints) == torch.iinfo(ints).max).all()  # 7fffffff
    assert torch.equal(found[~is_nan].double(), e[~is_nan])
    assert torch.equal(found[~is_nan].signbit(), e[~is_nan].signbit())


def exact(
    operation: Callable[..., Fraction | float], dtype: torch.dtype, *operands: Tensor
) -> list:
    """Where all operands are finite and the result is not a zero; else by IEEE doubles."""
    results = []
    for numbers in zip(*(t.tolist() for t in operands), strict=True):
        value = math.nan
        if all(map(math.isfinite, numbers)):
            value = operation(*map(Fraction, numbers))
            value = rounded(value, dtype) if value != 0 else None
        if value is None or not all(map(math.isfinite, numbers)):
            doubles = torch.tensor(numbers, dtype=torch.float64)
            value = float(operation(*doubles))
        results.append(value)
    return results


@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_arithmetic(kind: str) -> None:
    a, b = floats(DTYPES[kind])
    operands = (kind, a), (kind, b)
    for opcode, operation in {
        "add.rn": lambda x, y: x + y,
        "sub.rn": lambda x, y: x - y,
        "mul.rn": lambda x, y: x * y,
    }.items():
        found = evaluate(f"{opcode}.{kind} d, a, b;", kind, *operands)
        assert_floats(found, exact(operation, DTYPES[kind], a, b))


@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_reciprocal(kind: str) -> None:
    x, _ = floats(DTYPES[kind])
    found = evaluate(f"rcp.rn.{kind} d, a;", kind, (kind, x))
    finite = x.isfinite() & (x != 0)
    assert_floats(found[finite], exact(lambda x: 1 / x, DTYPES[kind], x[finite]))
    special = torch.tensor([0.0, -0.0, math.inf, -math.inf, math.nan], dtype=DTYPES[kind])
    found = evaluate(f"rcp.rn.{kind} d, a;", kind, (kind, special))
    assert_floats(found, [math.inf, -math.inf, 0.0, -0.0, math.nan])


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_arithmetic_with_a_number_of_16_bits(kind: str) -> None:
    a, c = floats(torch.float32)
    a = a.to(DTYPES[kind])
    operands = ("b16", a.view(torch.int16)), ("f32", c)
    for opcode, operation in {"add": lambda x, y: x + y, "sub": lambda x, y: x - y}.items():
        found = evaluate(f"{opcode}.rn.f32.{kind} d, a, b;", "f32", *operands)
        assert_floats(found, exact(operation, torch.float32, a, c))
    found = evaluate(f"fma.rn.f32.{kind} d, a, a, b;", "f32", *operands)
    assert_floats(found, exact(lambda x, y: x * x + y, torch.float32, a, c))


@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_fma_rounds_once(kind: str) -> None:
    a, b, c = (t[::7].contiguous() for t in floats(DTYPES[kind], 3))
    found = evaluate(f"fma.rn.{kind} d, a, b, c;", kind, (kind, a), (kind, b), (kind, c))
    assert_floats(found, exact(lambda x, y, z: x * y + z, DTYPES[kind], a, b, c))
    e = 2.0 ** (-12 if kind == "f32" else -27)
    one = [torch.tensor([x], dtype=DTYPES[kind]) for x in (1 + e, 1 + e, -1 - 2 * e)]
    found = evaluate(f"fma.rn.{kind} d, a, b, c;", kind, *[(kind, t) for t in one])
    assert found.item() == e * e


def test_flush_to_zero_only_where_it_stands() -> None:
    a = torch.tensor([2.0**-130, -(2.0**-127), 2.0**-126, 1.0])
    one, zero = torch.ones(4), torch.zeros(4)
    operands = ("f32", a), ("f32", one), ("f32", zero)
    assert evaluate("fma.rn.f32 d, a, b, c;", "f32", *operands).tolist() == a.tolist()
    flushed = evaluate("fma.rn.ftz.f32 d, a, b, c;", "f32", *operands)
    assert flushed.tolist() == [0, 0, 2.0**-126, 1]


def extreme(choose: Callable, nan_wins: bool) -> Callable[..., float]:
    """-0 is less than +0; a number wins over NaN, unless the opcode says NaN."""

    def of(*values: float) -> float:
        numbers = [x for x in values if not math.isnan(x)]
        if not numbers or (nan_wins and len(numbers) < len(values)):
            return math.nan
        return choose(numbers, key=lambda x: (x, math.copysign(1, x)))

    return of


EXTREMES = {
    "min": extreme(min, nan_wins=False), "min.NaN": extreme(min, nan_wins=True),
    "max": extreme(max, nan_wins=False), "max.NaN": extreme(max, nan_wins=True),
}  # fmt: skip


@pytest.mark.parametrize("kind", ["f64", "f32", "f16", "bf16"])
def test_minimum_and_maximum(kind: str) -> None:
    a, b = floats(DTYPES[kind])
    register = kind if kind in ("f32", "f64") else "b16"
    view = (lambda t: t.view(torch.int16)) if register == "b16" else lambda t: t
    operands = (register, view(a)), (register, view(b))
    for name, choose in EXTREMES.items():
        found = evaluate(f"{name}.{kind} d, a, b;", register, *operands)
        assert_floats(found.view(DTYPES[kind]), list(map(choose, a.tolist(), b.tolist())))


@pytest.mark.parametrize("kind", ["f64", "f32", "f16", "bf16"])
def test_comparisons(kind: str) -> None:
    a, b = floats(DTYPES[kind])
    register = kind if kind in ("f32", "f64") else "b16"
    view = (lambda t: t.view(torch.int16)) if register == "b16" else lambda t: t
    tests = {
        "eq": lambda x, y: x == y, "lt": lambda x, y: x < y, "le": lambda x, y: x <= y,
        "gt": lambda x, y: x > y, "ge": lambda x, y: x >= y, "ne": lambda x, y: x != y,
    }  # fmt: skip
    unordered = a.isnan() | b.isnan()
    for name, test in tests.items():
        ordered = test(a.double(), b.double()) & ~unordered
        for opcode, expected in {name: ordered, name + "u": ordered | unordered}.items():
            found = evaluate(
                f"setp.{opcode}.{kind} d, a, b;", "pred", (register, view(a)), (register, view(b))
            )
            assert torch.equal(found.bool(), expected), opcode
    for opcode, expected in {"nan": unordered, "num": ~unordered}.items():
        found = evaluate(
            f"setp.{opcode}.{kind} d, a, b;", "pred", (register, view(a)), (register, view(b))
        )
        assert torch.equal(found.bool(), expected), opcode


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_rounding_to_16_bits(kind: str) -> None:
    """Around every number of 16 bits and every tie: nearest, ties to even."""
    dtype = DTYPES[kind]
    exactly = torch.arange(-(2**15), 2**15, 97, dtype=torch.int16).view(dtype)
    exactly = exactly[exactly.isfinite()].float()
    above = torch.tensor(torch.finfo(dtype).eps, dtype=torch.float64)
    ties = (exactly.double() * (1 + above / 2)).float()
    near = torch.cat([t.nextafter(torch.tensor(s)) for t in (exactly, ties) for s in (-9e38, 9e38)])
    x = torch.cat([exactly, ties, near, torch.tensor(NUMBERS, dtype=torch.float32)])
    expected = [rounded(Fraction(v), dtype) if math.isfinite(v) and v else v for v in x.tolist()]
    found = evaluate(f"cvt.rn.{kind}.f32 d, a;", "b16", ("f32", x))
    assert_floats(found.view(dtype), expected)
    pair = evaluate(f"cvt.rn.{kind}x2.f32 d, a, b;", "b32", ("f32", x), ("f32", x.flip(0)))
    low, high = pair.view(dtype).view(-1, 2).unbind(1)  # the first source is the high half
    assert_floats(high.contiguous(), expected)
    assert_floats(low.contiguous(), expected[::-1])


def test_rounding_a_pair_towards_zero() -> None:
    exactly = torch.arange(-(2**15), 2**15, 97, dtype=torch.int16).view(torch.float16)
    exactly = exactly[exactly.isfinite()].float()
    near = [exactly.nextafter(torch.tensor(s)) for s in (-9e38, 9e38)]
    x = torch.cat([exactly, *near, torch.tensor(NUMBERS, dtype=torch.float32)])
    f16 = torch.arange(0x7C00, dtype=torch.int16).view(torch.float16).double()
    below = f16[torch.searchsorted(f16, x.double().abs(), right=True) - 1].copysign(x.double())
    expected = torch.where(x.isfinite(), below, x.double()).tolist()
    pair = evaluate("cvt.rz.f16x2.f32 d, a, b;", "b32", ("f32", x), ("f32", x.flip(0)))
    low, high = pair.view(torch.float16).view(-1, 2).unbind(1)
    assert_floats(high.contiguous(), expected)
    assert_floats(low.contiguous(), expected[::-1])


def values_of_8_bits(exponent_bits: int, count: int) -> list[float]:
    """The first numbers of a format, by its definition."""
    mantissa_bits, bias = 7 - exponent_bits, 2 ** (exponent_bits - 1) - 1
    fields = [divmod(code, 2**mantissa_bits) for code in range(count)]
    return [(min(e, 1) + m / 2**mantissa_bits) * 2.0 ** (max(e, 1) - bias) for e, m in fields]


@pytest.mark.parametrize("kind", ["e4m3x2", "e5m2x2"])
def test_rounding_to_8_bits(kind: str) -> None:
    """Nearest, ties to the even code, at most the largest finite number; NaN is 7f."""
    values = values_of_8_bits(int(kind[1]), 0x7F if kind == "e4m3x2" else 0x7C)
    largest = values[-1]
    assert largest == (448 if kind == "e4m3x2" else 57344)
    exactly = torch.tensor(values)
    ties = (exactly[1:] + exactly[:-1]) / 2
    near = [t.nextafter(torch.tensor(s)) for t in (exactly, ties) for s in (0.0, 9e38)]
    beyond = torch.tensor([largest * f for f in (1.03, 1.0625, 1.07, 1.125, 1.25, 2.0)])
    x = torch.cat([exactly, ties, *near, beyond, torch.tensor(NUMBERS, dtype=torch.float32)])
    x = torch.cat([x, -x])

    def code(x: float) -> int:
        if math.isnan(x):
            return 0x7F
        nearest = min(range(len(values)), key=lambda k: (abs(values[k] - min(abs(x), 1e6)), k % 2))
        return nearest | (0x80 if math.copysign(1, x) < 0 else 0)

    def check(found: Tensor, x: Tensor) -> None:
        low, high = found.view(torch.uint8).view(-1, 2).unbind(1)
        expected = [code(v) for v in x.tolist()]
        assert low.tolist() == expected
        assert high.tolist() == expected[::-1]  # of the first source, or of the high half

    opcode = f"cvt.rn.satfinite.{kind}"
    check(evaluate(f"{opcode}.f32 d, a, b;", "b16", ("f32", x.flip(0)), ("f32", x)), x)
    for half in ("f16", "bf16"):
        h = x.to(DTYPES[half])
        pairs = torch.stack([h, h.flip(0)], 1).view(torch.int32).flatten()
        check(evaluate(f"{opcode}.{half}x2 d, a;", "b16", ("b32", pairs)), h)


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_widening_16_bits(kind: str) -> None:
    x = torch.arange(-(2**15), 2**15, dtype=torch.int16)
    found = evaluate(f"cvt.f32.{kind} d, a;", "f32", ("b16", x))
    assert_floats(found, x.view(DTYPES[kind]).double().tolist())


def test_integers_are_rounded() -> None:
    numbers = torch.tensor([0, 1, -1, 2**31 - 1, -(2**31), 16777217], dtype=torch.int32)
    found = evaluate("cvt.rn.f32.u32 d, a;", "f32", ("b32", numbers))
    assert_floats(
        found, [rounded(Fraction(v), torch.float32) for v in (n % 2**32 for n in numbers.tolist())]
    )
    short = torch.tensor([0, 1, -1, -(2**15), 2**15 - 1], dtype=torch.int16)
    assert evaluate("cvt.rn.f32.s16 d, a;", "f32", ("b16", short)).tolist() == short.tolist()
    found = evaluate("cvt.rn.f32.u16 d, a;", "f32", ("b16", short)).tolist()
    assert found == [n % 2**16 for n in short.tolist()]


def test_floats_are_cut_off_to_integers() -> None:
    """What has no integer becomes the nearest, and NaN 0."""
    cut = {0.99: 0, 254.99998: 254, -0.99: 0, -1.5: -1, -0.0: 0, 2.0**31 - 128: 2**31 - 128}
    ends = {2.0**31: 2**31 - 1, math.inf: 2**31 - 1, -(2.0**31): -(2**31), -math.inf: -(2**31)}
    x = torch.tensor([*cut, *ends, math.nan])
    found = evaluate("cvt.rzi.s32.f32 d, a;", "b32", ("f32", x))
    assert found.tolist() == [*cut.values(), *ends.values(), 0]


def test_pairs_of_floats() -> None:
    a, b = floats(torch.float32)
    both = [torch.stack([t, t.flip(0)], 1).contiguous().view(torch.int64).flatten() for t in (a, b)]
    operations = {"add": lambda x, y: x + y, "sub": lambda x, y: x - y, "mul": lambda x, y: x * y}
    for opcode, operation in operations.items():
        found = evaluate(f"{opcode}.rn.f32x2 d, a, b;", "b64", *[("b64", t) for t in both])
        low, high = found.view(torch.float32).view(-1, 2).unbind(1)
        expected = exact(operation, torch.float32, a, b)
        assert_floats(low.contiguous(), expected)
        assert_floats(high.contiguous(), expected[::-1])


def pairs_of_16_bits(t: Tensor) -> tuple[str, Tensor]:
    """Each number in the low half, and beside it the number as far from the end."""
    return "b32", torch.stack([t, t.flip(0)], 1).contiguous().view(torch.int32).flatten()


def assert_pairs(found: Tensor, dtype: torch.dtype, expected: Sequence[float]) -> None:
    low, high = found.view(dtype).view(-1, 2).unbind(1)
    assert_floats(low.contiguous(), expected)
    assert_floats(high.contiguous(), expected[::-1])


def test_arithmetic_of_pairs_of_bfloat_rounds_once() -> None:
    dtype = torch.bfloat16
    a, b, c = (t[::7] for t in floats(dtype, 3))
    # 3 * 131 is between two of these numbers, and the addend says to which it goes.
    between = [[x, 131.0, y] for x in (3.0, -3.0) for y in (2.0**-133, -(2.0**-60), 0.0, 1.0)]
    a, b, c = (
        torch.cat([t, torch.tensor(column).to(dtype)])
        for t, column in zip((a, b, c), zip(*between, strict=True), strict=True)
    )
    operands = [pairs_of_16_bits(t) for t in (a, b, c)]
    found = evaluate("fma.rn.bf16x2 d, a, b, c;", "b32", *operands)
    assert_pairs(found, dtype, exact(lambda x, y, z: x * y + z, dtype, a, b, c))
    expected = exact(lambda x, y: x * y, dtype, a, b)
    for opcode in ("mul.bf16x2", "mul.rn.bf16x2"):
        assert_pairs(evaluate(f"{opcode} d, a, b;", "b32", *operands[:2]), dtype, expected)


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_pairs_of_16_bits(kind: str) -> None:
    a, b = floats(DTYPES[kind])
    x, y = pairs_of_16_bits(a), pairs_of_16_bits(b)
    for name, choose in EXTREMES.items():
        found = evaluate(f"{name}.{kind}x2 d, a, b;", "b32", x, y)
        assert_pairs(found, DTYPES[kind], list(map(choose, a.tolist(), b.tolist())))
    found = evaluate(f"max.NaN.xorsign.abs.{kind}x2 d, a, b;", "b32", x, y)
    signs = [math.copysign(1, p) * math.copysign(1, q) for p, q in zip(a, b, strict=True)]
    chosen = map(EXTREMES["max.NaN"], a.abs().tolist(), b.abs().tolist())
    assert_pairs(found, DTYPES[kind], [p * sign for p, sign in zip(chosen, signs, strict=True)])
    found = evaluate(f"abs.{kind}x2 d, a;", "b32", x)
    assert torch.equal(found, x[1] & 0x7FFF7FFF)
    found = evaluate(f"neg.{kind}x2 d, a;", "b32", x)
    assert torch.equal(found, x[1] ^ torch.tensor(0x80008000).int())
    if kind == "f16":
        found = evaluate("set.nan.f16x2.f16x2 d, a, b;", "b32", x, y)
        assert_pairs(found, torch.float16, (a.isnan() | b.isnan()).double().tolist())


@pytest.mark.parametrize("name", ["min", "max", "min.NaN", "max.NaN"])
def test_extremes_of_absolute_values_and_of_three(name: str) -> None:
    choose = EXTREMES[name]
    a, b = floats(torch.float32)
    found = evaluate(f"{name}.xorsign.abs.f32 d, a, b;", "f32", ("f32", a), ("f32", b))
    signs = [math.copysign(1, x) * math.copysign(1, y) for x, y in zip(a, b, strict=True)]
    chosen = map(choose, a.abs().tolist(), b.abs().tolist())
    assert_floats(found, [x * sign for x, sign in zip(chosen, signs, strict=True)])
    three = [t[::7].contiguous() for t in floats(torch.float32, 3)]
    operands = [("f32", t) for t in three]
    for opcode, numbers in {name: three, name + ".abs": [t.abs() for t in three]}.items():
        found = evaluate(f"{opcode}.f32 d, a, b, c;", "f32", *operands)
        assert_floats(found, list(map(choose, *[t.tolist() for t in numbers])))


def test_the_special_function_unit_errs_within_its_bound() -> None:
    x = torch.linspace(-120, 120, 4096)
    for error in ptx_on_cpu.Error:
        with ptx_on_cpu.special_function_unit(error, error, seed=3):
            power = evaluate("ex2.approx.ftz.f32 d, a;", "f32", ("f32", x)).double()
            inverse = evaluate("rcp.approx.ftz.f32 d, a;", "f32", ("f32", x)).double()
        for y, expected, bound in (
            (power, torch.exp2(x.double()), 2.0**-22),
            (inverse, 1 / x.double(), 2.0**-23),
        ):
            relative = (y / expected - 1).abs()
            assert relative.max() <= bound
            if error != ptx_on_cpu.Error.NONE:
                assert relative.max() > bound / 3
