"""Floating-point instructions, compared with Python's fractions."""

import math
import operator
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction

import numpy as np
import torch
from torch import Tensor

from tests import ptx_on_cpu
from tests.cases import each
from tests.ptx_on_cpu.instructions.kernels import DTYPES, evaluate

NUMBERS = [0.0, -0.0, 1.0, -1.0, 1.5, 3.0, -7.25, 1e-3, 65504.0, -65519.9, 65520.0, 3e38, -3e38]
NUMBERS += [2**-14, 2**-24, 2**-25, 3 * 2**-25, 1e-38, 1.4e-45, -1.4e-45, 2**-126, 1e-40]
NUMBERS += [math.inf, -math.inf, math.nan, 1 + 2**-11, 1 + 3 * 2**-11, 1 + 2**-8, 1 + 3 * 2**-8]

# Triples whose a b + c would differ if the product were rounded.
ROUNDED_ONCE = [(1 + e, 1 + e, -1 - 2 * e) for e in (2.0**-12, 2.0**-27)]
# 3 * 131 is between two bfloats, and the addend says to which it goes.
ROUNDED_ONCE += [(x, 131.0, y) for x in (3.0, -3.0) for y in (2.0**-133, -(2.0**-60), 0.0, 1.0)]

# An instruction without its operands, the types of its result and of these, and what the result is.
Function = Callable[..., float]
Row = tuple[str, str, list[str], Function]


def floats(*kinds: str) -> list[Tensor]:
    """All combinations of NUMBERS, of three every seventh."""
    values = [torch.tensor(NUMBERS, dtype=torch.float64)] * len(kinds)
    grid = torch.meshgrid(values, indexing="ij")
    columns = [t.flatten().to(DTYPES[kind]) for kind, t in zip(kinds, grid, strict=True)]
    if len(kinds) < 3:
        return columns
    last = torch.tensor(ROUNDED_ONCE, dtype=torch.float64).unbind(1)
    return [torch.cat([c[::7], t.to(c.dtype)]) for c, t in zip(columns, last, strict=True)]


def rounded(x: Fraction, kind: str) -> float:
    """To nearest, ties to even, by Fraction's own arithmetic; overflow to infinity."""
    precision, least = {
        "f64": (53, -1074), "f32": (24, -149), "f16": (11, -24), "bf16": (8, -133),
    }[kind]  # fmt: skip
    exponent = abs(x.numerator).bit_length() - x.denominator.bit_length()
    exponent -= abs(x) < Fraction(2) ** exponent
    place = Fraction(2) ** max(exponent - precision + 1, least)
    y = round(x / place) * place
    is_finite = abs(y) <= Fraction(torch.finfo(DTYPES[kind]).max)
    return math.copysign(float(y) if is_finite else math.inf, x)


def exact(function: Callable[..., Fraction | Tensor], kind: str) -> Function:
    """Rounded once; by IEEE doubles for infinities, NaNs, divisors of 0 and results of 0."""

    def of(*numbers: float) -> float:
        try:
            value = function(*map(Fraction, numbers))
        except (ValueError, OverflowError, ZeroDivisionError):
            value = 0
        if value == 0:
            return float(function(*torch.tensor(numbers, dtype=torch.float64)))
        return rounded(value, kind)

    return of


def assert_floats(found: Tensor, expected: Sequence[float], name: str) -> None:
    """By value and the sign of zero; a NaN by its bits."""
    e = torch.tensor(expected, dtype=torch.float64)
    is_nan = e.isnan()
    assert torch.equal(found.isnan(), is_nan), name
    ints = {8: torch.int64, 4: torch.int32, 2: torch.int16}[found.itemsize]
    assert (found[is_nan].view(ints) == torch.iinfo(ints).max).all(), name  # 7fffffff
    assert torch.equal(found[~is_nan].double(), e[~is_nan]), name
    assert torch.equal(found[~is_nan].signbit(), e[~is_nan].signbit()), name


def operand(kind: str, column: Tensor) -> tuple[str, Tensor]:
    return ("b16", column.view(torch.int16)) if column.itemsize == 2 else (kind, column)


def pair_of(column: Tensor) -> tuple[str, Tensor]:
    """Each number in the low half, and in the high half the number as far from the end."""
    bits = 16 * column.itemsize
    word = DTYPES[f"b{bits}"]
    return f"b{bits}", torch.stack([column, column.flip(0)], 1).view(word).flatten()


def check_row(row: Row, columns: list[Tensor] | None = None) -> None:
    """For the type f32x2 both halves are checked."""
    opcode, result, kinds, function = row
    is_pair = kinds[0].endswith("x2")
    scalars = [kind.removesuffix("x2") for kind in kinds]
    columns = floats(*scalars) if columns is None else columns
    operands = map(pair_of, columns) if is_pair else map(operand, scalars, columns)
    names = ", ".join("abc"[: len(kinds)])
    expected = list(map(function, *(c.tolist() for c in columns)))
    kind = result.removesuffix("x2")
    dtype = DTYPES[kind]
    register = result if result in ("f32", "f64", "pred") else f"b{8 * dtype.itemsize << is_pair}"
    found = evaluate(f"{opcode} d, {names};", register, *operands)
    if result == "pred":
        assert found.bool().tolist() == expected, opcode
    elif is_pair:
        low, high = found.view(dtype).view(-1, 2).unbind(1)
        assert_floats(low, expected, opcode)
        assert_floats(high, expected[::-1], opcode)
    else:
        assert_floats(found.view(dtype), expected, opcode)


def check(rows: Iterator[Row]) -> None:
    for row in rows:
        check_row(row)


ARITHMETIC = {"add": operator.add, "sub": operator.sub, "mul": operator.mul}


def fused(a: Fraction, b: Fraction, c: Fraction) -> Fraction:
    return a * b + c


def arithmetic(kind: str) -> Iterator[Row]:
    scalar = kind.removesuffix("x2")
    for name, function in ARITHMETIC.items():
        yield f"{name}.rn.{kind}", kind, [kind] * 2, exact(function, scalar)
    yield f"fma.rn.{kind}", kind, [kind] * 3, exact(fused, scalar)
    if kind == scalar:
        yield f"div.rn.{kind}", kind, [kind] * 2, exact(operator.truediv, kind)
        yield f"rcp.rn.{kind}", kind, [kind], exact(lambda x: 1 / x, kind)


@each(kind=["f32", "f64", "f32x2"])
def test_arithmetic(kind: str) -> None:
    check(arithmetic(kind))


def test_rounding_towards_zero() -> None:
    """A sum that fits is exact, and another one is the nearer to zero of its neighbours."""

    def of(a: float, b: float) -> float:
        nearest = exact(operator.add, "f32")(a, b)
        if not (math.isfinite(a) and math.isfinite(b)):
            return nearest
        total = Fraction(a) + Fraction(b)
        if math.isinf(nearest) or abs(Fraction(nearest)) > abs(total):
            return float(np.nextafter(np.float32(nearest), np.float32(0)))
        return nearest

    check_row(("add.rz.f32", "f32", ["f32", "f32"], of))


def arithmetic_of_16_bits() -> Iterator[Row]:
    for kind in ("f16", "bf16"):
        for name in ("add", "sub"):
            function = exact(ARITHMETIC[name], "f32")
            yield f"{name}.rn.f32.{kind}", "f32", [kind, "f32"], function
        yield f"fma.rn.f32.{kind}", "f32", [kind, kind, "f32"], exact(fused, "f32")
    yield "fma.rn.bf16x2", "bf16x2", ["bf16x2"] * 3, exact(fused, "bf16")


def test_arithmetic_of_16_bits() -> None:
    check(arithmetic_of_16_bits())


def test_saturation() -> None:
    pairs = [(0.5, 0.5), (3.0, 2.0), (-3.0, 2.0), (0.0, math.inf), (math.nan, 1.0), (2.0, math.inf)]
    pairs += [(2.0**-100, 2.0**-49), (1 + 2**-12, 1 - 2**-12)]
    operands = (("f32", torch.tensor(column)) for column in zip(*pairs, strict=True))
    expected = [0.25, 1, 0, 0, 0, 1, 2.0**-149, 1 - 2.0**-24]
    assert evaluate("mul.rn.sat.f32 d, a, b;", "f32", *operands).tolist() == expected


def test_flush_to_zero_only_where_it_stands() -> None:
    a = torch.tensor([2.0**-130, -(2.0**-127), 2.0**-126, 1.0])
    operands = ("f32", a), ("f32", torch.ones(4)), ("f32", torch.zeros(4))
    assert evaluate("fma.rn.f32 d, a, b, c;", "f32", *operands).tolist() == a.tolist()
    flushed = evaluate("fma.rn.ftz.f32 d, a, b, c;", "f32", *operands)
    assert flushed.tolist() == [0, 0, 2.0**-126, 1]


def extreme(choose: Callable, nan_wins: bool) -> Function:
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


def magnitude_with_sign_of_product(a: float, b: float) -> float:
    return EXTREMES["max.NaN"](abs(a), abs(b)) * math.copysign(1, a) * math.copysign(1, b)


def is_unordered(a: float, b: float) -> bool:
    return math.isnan(a) or math.isnan(b)


def ordered(kind: str) -> Iterator[Row]:
    for name, function in EXTREMES.items():
        yield f"{name}.{kind}", kind, [kind] * 2, function
    if kind in ("f32", "f16x2", "bf16x2"):
        opcode = f"max.NaN.xorsign.abs.{kind}"
        yield opcode, kind, [kind] * 2, magnitude_with_sign_of_product
    if kind.endswith("x2"):
        return
    for name in ("eq", "ne", "lt", "le", "gt", "ge"):
        compare = getattr(operator, name)
        for suffix, if_unordered in (("", False), ("u", True)):

            def function(a: float, b: float, compare=compare, otherwise=if_unordered) -> bool:
                return otherwise if is_unordered(a, b) else compare(a, b)

            yield f"setp.{name}{suffix}.{kind}", "pred", [kind] * 2, function
    yield f"setp.nan.{kind}", "pred", [kind] * 2, is_unordered
    yield f"setp.num.{kind}", "pred", [kind] * 2, lambda a, b: not is_unordered(a, b)


@each(kind=["f64", "f32", "f16", "bf16", "f16x2", "bf16x2"])
def test_extremes_and_comparisons(kind: str) -> None:
    check(ordered(kind))


@each(kind=["f16x2", "bf16x2"])
def test_comparisons_of_pairs(kind: str) -> None:
    """A predicate for the low half, and one for the high."""
    a, b = floats(*[kind.removesuffix("x2")] * 2)
    compare = "{{ .reg .pred p, q; setp.{}.{} p|q, a, b; selp.b32 d, 1, 0, p; @q or.b32 d, d, 2; }}"
    is_unordered = a.isnan() | b.isnan()
    names = {name: getattr(torch, name)(a, b) for name in ("eq", "lt", "gt")}
    for name, expected in (names | {"gtu": (a > b) | is_unordered, "num": ~is_unordered}).items():
        found = evaluate(compare.format(name, kind), "b32", pair_of(a), pair_of(b))
        assert torch.equal(found, expected.int() + 2 * expected.flip(0).int()), name


@each(kind=["f64", "f32", "f16", "bf16"])
def test_signs(kind: str) -> None:
    """Of a NaN too, whose other bits stay."""
    (x,) = floats(kind)
    register, bits = operand(kind, x)
    word = DTYPES[f"b{8 * x.itemsize}"]
    least = torch.iinfo(word).min
    signs = {"neg": bits.view(word) ^ least, "abs": bits.view(word) & ~least}
    for name, expected in signs.items():
        found = evaluate(f"{name}.{kind} d, a;", register, (register, bits))
        assert torch.equal(found.view(word), expected), name
    if x.itemsize == 2:
        found = evaluate(f"abs.{kind}x2 d, a;", "b32", pair_of(x))
        assert torch.equal(found, pair_of(x)[1] & 0x7FFF7FFF)


def around(values: Tensor, ties: Tensor) -> Tensor:
    """The values, the ties between them, the next floats on either side of each, and NUMBERS."""
    near = [t.nextafter(torch.tensor(s)) for t in (values, ties) for s in (-9e38, 9e38)]
    return torch.cat([values, ties, *near, torch.tensor(NUMBERS, dtype=torch.float32)])


@each(kind=["f16", "bf16"])
def test_rounding_to_16_bits(kind: str) -> None:
    """Around every 97th number and its tie: nearest, ties to even."""
    exactly = torch.arange(-(2**15), 2**15, 97, dtype=torch.int16).view(DTYPES[kind])
    exactly = exactly[exactly.isfinite()].float()
    x = around(exactly, (exactly.double() * (1 + torch.finfo(DTYPES[kind]).eps / 2)).float())
    expected = [rounded(Fraction(v), kind) if math.isfinite(v) and v else v for v in x.tolist()]
    found = evaluate(f"cvt.rn.{kind}.f32 d, a;", "b16", ("f32", x))
    assert_floats(found.view(DTYPES[kind]), expected, kind)
    pair = evaluate(f"cvt.rn.{kind}x2.f32 d, a, b;", "b32", ("f32", x), ("f32", x.flip(0)))
    low, high = pair.view(DTYPES[kind]).view(-1, 2).unbind(1)  # the first source is the high half
    assert_floats(high, expected, kind)
    assert_floats(low, expected[::-1], kind)


def values_of_8_bits(exponent_bits: int, count: int) -> list[float]:
    """The first numbers of a format, by its definition."""
    mantissa_bits, bias = 7 - exponent_bits, 2 ** (exponent_bits - 1) - 1
    fields = [divmod(code, 2**mantissa_bits) for code in range(count)]
    return [(min(e, 1) + m / 2**mantissa_bits) * 2.0 ** (max(e, 1) - bias) for e, m in fields]


@each(kind=["e4m3x2", "e5m2x2"])
def test_rounding_to_8_bits(kind: str) -> None:
    """Nearest, ties to the even code, at most the largest finite number; NaN is 7f."""
    values = values_of_8_bits(int(kind[1]), 0x7F if kind == "e4m3x2" else 0x7C)
    largest = values[-1]
    assert largest == (448 if kind == "e4m3x2" else 57344)
    exactly = torch.tensor(values)
    beyond = torch.tensor([largest * f for f in (1.03, 1.0625, 1.07, 1.125, 1.25, 2.0)])
    x = torch.cat([around(exactly, (exactly[1:] + exactly[:-1]) / 2), beyond])
    x = torch.cat([x, -x])

    def code(x: float) -> int:
        if math.isnan(x):
            return 0x7F
        nearest = min(range(len(values)), key=lambda k: (abs(values[k] - min(abs(x), 1e6)), k % 2))
        return nearest | (0x80 if math.copysign(1, x) < 0 else 0)

    found = evaluate(f"cvt.rn.satfinite.{kind}.f32 d, a, b;", "b16", ("f32", x.flip(0)), ("f32", x))
    low, high = found.view(torch.uint8).view(-1, 2).unbind(1)  # the first source is the high half
    expected = [code(v) for v in x.tolist()]
    assert (low.tolist(), high.tolist()) == (expected, expected[::-1])


def test_other_conversions() -> None:
    for kind in ("f16", "bf16"):
        every = torch.arange(-(2**15), 2**15, dtype=torch.int16).view(DTYPES[kind])
        check_row((f"cvt.f32.{kind}", "f32", [kind], float), [every])
    (x,) = floats("f64")
    narrow = exact(lambda x: +x, "f32")
    check_row(("cvt.rn.f32.f64", "f32", ["f64"], narrow), [x])
    check_row(("cvt.f64.f32", "f64", ["f32"], float), [x.float()])
    numbers = torch.tensor([0, 1, -1, 2**31 - 1, -(2**31), 16777217], dtype=torch.int32)
    expected = [rounded(Fraction(n % 2**32), "f32") for n in numbers.tolist()]
    assert_floats(evaluate("cvt.rn.f32.u32 d, a;", "f32", ("b32", numbers)), expected, "u32")
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
