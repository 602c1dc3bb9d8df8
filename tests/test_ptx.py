"""The machine that executes PTX in the tests: its instructions beside the words of the PTX ISA, and
the faults that it finds. Oracles are Python's integers and fractions.
"""

import ctypes
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import product

import ptx_on_cpu
import pytest
import torch
from torch import Tensor

DTYPES = {
    "f64": torch.float64, "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16,
    "b64": torch.int64, "b32": torch.int32, "b16": torch.int16, "b8": torch.uint8,
    "pred": torch.uint8,
}  # fmt: skip
SIZES = {name: dtype.itemsize for name, dtype in DTYPES.items()}


def module(
    body: str, parameters: int, registers: str = "", shared: int = 0, most: int = 1024
) -> str:
    """A kernel `k` with so many pointers p0, p1, ... for parameters, in %rd0, %rd1, ..."""
    declared = ", ".join(f".param .u64 p{i}" for i in range(parameters))
    loads = "\n".join(f"ld.param.u64 %rd{i}, [p{i}];" for i in range(parameters))
    return f"""
.shared .align 16 .b8 memory[{shared or 16}];
.visible .entry k({declared})
.maxntid {most}, 1, 1
{{
.reg .b64 %rd<20>;
.reg .b32 %r<20>;
.reg .b16 %rs<20>;
.reg .f32 %f<20>;
.reg .pred %p<20>;
{registers}
{loads}
mov.u32 %r0, %tid.x;
{body}
ret;
}}
"""


def launch(text: str, tensors: Sequence[Tensor], threads: int = 32, blocks: int = 1) -> None:
    (kernel,) = ptx_on_cpu.load(text).values()
    values = [ctypes.c_uint64(t.data_ptr()) for t in tensors]
    pointers = (ctypes.c_void_p * len(values))(*[ctypes.addressof(v) for v in values])
    kernel.launch((blocks, 1, 1), (threads, 1, 1), 0, ctypes.addressof(pointers))


def evaluate(instruction: str, result: str, *operands: tuple[str, Tensor]) -> Tensor:
    """The instruction for each element: `d` stands for its result, a, b, c for the operands, whose
    types are in bits."""
    n = operands[0][1].numel()
    lines, tensors = [], []

    def address(i: int, size: int) -> None:
        lines.append(f"mad.wide.u32 %rd19, %r0, {size}, %rd{i};")

    registers = [f".reg .{kind} {name};" for name, (kind, _) in zip("abc", operands, strict=False)]
    registers.append(f".reg .{result} d;")
    for i, (name, (kind, t)) in enumerate(zip("abc", operands, strict=False)):
        address(i, SIZES[kind])
        bits = "b8" if kind == "pred" else f"b{8 * SIZES[kind]}"
        if kind == "pred":
            lines += [f"ld.global.{bits} %rs1, [%rd19];", f"setp.ne.b16 {name}, %rs1, 0;"]
        else:
            lines.append(f"ld.global.{bits} {name}, [%rd19];")
        tensors.append(t.contiguous())
    lines.append(instruction)
    out = torch.zeros(n, dtype=DTYPES[result])
    address(len(operands), SIZES[result])
    if result == "pred":
        lines += ["selp.b16 %rs1, 1, 0, d;", "st.global.b8 [%rd19], %rs1;"]
    else:
        lines.append(f"st.global.b{8 * SIZES[result]} [%rd19], d;")
    text = module("\n".join(lines), len(operands) + 1, "\n".join(registers))
    for begin in range(0, n, 1024):
        part = [t[begin : begin + 1024].clone() for t in tensors]
        results = out[begin : begin + 1024].clone()
        launch(text, [*part, results], threads=results.numel())
        out[begin : begin + 1024] = results
    return out


def signed(t: Tensor) -> list[int]:
    return [int(x) for x in t]


def unsigned(t: Tensor) -> list[int]:
    return [int(x) % (1 << 8 * t.itemsize) for x in t]


INTERESTING = [0, 1, 2, 3, 5, 31, 32, 33, 63, 64, 65, 255, 256, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF]
INTERESTING += [-x for x in INTERESTING] + [
    0x123456789ABCDEF,
    -0x123456789ABCDEF,
    1 << 62,
    -(1 << 63),
]


def integers(dtype: torch.dtype, count: int = 2) -> list[Tensor]:
    """All combinations of interesting numbers."""
    bits = 8 * dtype.itemsize
    values = sorted({(x + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1) for x in INTERESTING})
    columns = zip(*product(values, repeat=count), strict=True)
    return [torch.tensor(column, dtype=dtype) for column in columns]


def wrapped(x: int, bits: int) -> int:
    return (x + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)


UNSIGNED: dict[str, Callable[[int, int], int]] = {
    "add.u{}": lambda a, b: a + b,
    "sub.u{}": lambda a, b: a - b,
    "mul.lo.u{}": lambda a, b: a * b,
    "and.b{}": lambda a, b: a & b,
    "or.b{}": lambda a, b: a | b,
    "xor.b{}": lambda a, b: a ^ b,
    "min.u{}": min,
    "max.u{}": max,
}


@pytest.mark.parametrize("bits", [16, 32, 64])
@pytest.mark.parametrize("opcode", UNSIGNED)
def test_unsigned(opcode: str, bits: int) -> None:
    a, b = integers(DTYPES[f"b{bits}"])
    found = evaluate(
        f"{opcode.format(bits)} d, a, b;", f"b{bits}", (f"b{bits}", a), (f"b{bits}", b)
    )
    expected = [UNSIGNED[opcode](x, y) for x, y in zip(unsigned(a), unsigned(b), strict=True)]
    assert signed(found) == [wrapped(x, bits) for x in expected]


@pytest.mark.parametrize("bits", [16, 32, 64])
@pytest.mark.parametrize("kind", ["s", "u"])
def test_order(kind: str, bits: int) -> None:
    a, b = integers(DTYPES[f"b{bits}"])
    numbers = signed if kind == "s" else unsigned
    pairs = list(zip(numbers(a), numbers(b), strict=True))
    operands = (f"b{bits}", a), (f"b{bits}", b)
    tests = {
        "eq": lambda x, y: x == y, "ne": lambda x, y: x != y, "lt": lambda x, y: x < y,
        "le": lambda x, y: x <= y, "gt": lambda x, y: x > y, "ge": lambda x, y: x >= y,
    }  # fmt: skip
    for name, expected in tests.items():
        found = evaluate(f"setp.{name}.{kind}{bits} d, a, b;", "pred", *operands)
        assert found.bool().tolist() == [expected(x, y) for x, y in pairs], name
    for name, function in {"min": min, "max": max}.items():
        found = evaluate(f"{name}.{kind}{bits} d, a, b;", f"b{bits}", *operands)
        assert signed(found) == [wrapped(function(x, y), bits) for x, y in pairs], name


@pytest.mark.parametrize("bits", [16, 32, 64])
@pytest.mark.parametrize("opcode", ["shl.b", "shr.u", "shr.s"])
def test_shifts_clamp(opcode: str, bits: int) -> None:
    a, _ = integers(DTYPES[f"b{bits}"])
    n = torch.tensor([0, 1, 7, 15, 16, 17, 31, 32, 33, 63, 64, 65, 255, -1], dtype=torch.int32)
    a, n = a.unique().repeat_interleave(len(n)), n.repeat(len(a.unique()))
    found = evaluate(f"{opcode}{bits} d, a, b;", f"b{bits}", (f"b{bits}", a), ("b32", n))
    for x, shift, y in zip(signed(a), unsigned(n), signed(found), strict=True):
        whole = x if opcode == "shr.s" else x % (1 << bits)
        shift = min(shift, bits)
        assert y == wrapped(whole << shift if opcode == "shl.b" else whole >> shift, bits)


def test_products() -> None:
    a, b = integers(torch.int32)
    c, d = integers(torch.int64)
    narrow, wide = (("b32", a), ("b32", b)), (("b64", c), ("b64", d))
    pairs = list(zip(unsigned(a), unsigned(b), strict=True))
    signed_pairs = list(zip(signed(a), signed(b), strict=True))
    assert signed(evaluate("mul.hi.u32 d, a, b;", "b32", *narrow)) == [
        wrapped(x * y >> 32, 32) for x, y in pairs
    ]
    assert signed(evaluate("mul.wide.u32 d, a, b;", "b64", *narrow)) == [
        wrapped(x * y, 64) for x, y in pairs
    ]
    assert signed(evaluate("mul.wide.s32 d, a, b;", "b64", *narrow)) == [
        x * y for x, y in signed_pairs
    ]
    assert signed(evaluate("mul.hi.u64 d, a, b;", "b64", *wide)) == [
        wrapped(x * y >> 64, 64) for x, y in zip(unsigned(c), unsigned(d), strict=True)
    ]
    assert signed(evaluate("mad.lo.s32 d, a, b, a;", "b32", *narrow)) == [
        wrapped(x * y + x, 32) for x, y in signed_pairs
    ]


def test_fields() -> None:
    """bfi, bfe, prmt and lop3, bit by bit."""
    torch.manual_seed(1)
    a, b = (torch.randint(-(2**31), 2**31, (4096,)).int() for _ in range(2))
    for position, length in product((0, 1, 5, 31, 32, 40), (0, 1, 5, 27, 31, 32, 40)):
        operands = ("b32", a[:64]), ("b32", b[:64])
        inserted = evaluate(f"bfi.b32 d, a, b, {position}, {length};", "b32", *operands)
        extracted = evaluate(f"bfe.u32 d, a, {position}, {length};", "b32", operands[0])
        signs = evaluate(f"bfe.s32 d, a, {position}, {length};", "b32", operands[0])
        field = range(position, min(position + length, 32))
        for x, y, i, e, s in zip(
            *map(unsigned, (a[:64], b[:64], inserted, extracted, signs)), strict=True
        ):
            kept = sum(y & 1 << k for k in range(32) if k not in field)
            assert i == kept + sum((x >> k - position & 1) << k for k in field)
            unsigned_field = sum((x >> k & 1) << k - position for k in field)
            assert e == unsigned_field
            sign = x >> min(position + length - 1, 31) & 1 if length else 0
            above = sum(1 << k for k in range(len(field), 32)) if sign else 0
            assert s == unsigned_field + above
    for selector in (0x3340, 0x5410, 0x7632, 0x0123, 0x8888, 0xFA50):
        found = evaluate(f"prmt.b32 d, a, b, {selector:#x}U;", "b32", ("b32", a), ("b32", b))
        for x, y, d in zip(*map(unsigned, (a[:64], b[:64], found[:64])), strict=True):
            bytes_ = [(x | y << 32) >> 8 * k & 0xFF for k in range(8)]
            chosen = [(selector >> 4 * k & 7, selector >> 4 * k & 8) for k in range(4)]
            picked = [
                (0xFF if bytes_[k] & 0x80 else 0) if sign else bytes_[k] for k, sign in chosen
            ]
            assert d == sum(byte << 8 * k for k, byte in enumerate(picked))
    for table in (0xE4, 0x80, 0xFE, 0x96, 0x01, 0xCA):
        found = evaluate(
            f"lop3.b32 d, a, b, 0x80008000, {table:#x};", "b32", ("b32", a), ("b32", b)
        )
        for x, y, d in zip(*map(unsigned, (a[:64], b[:64], found[:64])), strict=True):
            z = 0x80008000
            index = [(x >> k & 1) << 2 | (y >> k & 1) << 1 | z >> k & 1 for k in range(32)]
            assert d == sum((table >> i & 1) << k for k, i in enumerate(index))


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


@pytest.mark.parametrize("kind", ["f64", "f32", "f16", "bf16"])
def test_minimum_and_maximum(kind: str) -> None:
    """-0 is less than +0; a number wins over NaN, unless the opcode says NaN."""
    a, b = floats(DTYPES[kind])
    register = kind if kind in ("f32", "f64") else "b16"
    view = (lambda t: t.view(torch.int16)) if register == "b16" else lambda t: t
    operands = (register, view(a)), (register, view(b))
    order = lambda x: (x, math.copysign(1, x))  # noqa: E731
    for name, choose in {"min": min, "max": max}.items():
        for nan_wins in (False, True):
            opcode = f"{name}{'.NaN' if nan_wins else ''}.{kind}"
            found = evaluate(f"{opcode} d, a, b;", register, *operands)
            expected = []
            for x, y in zip(a.tolist(), b.tolist(), strict=True):
                numbers = [n for n in (x, y) if not math.isnan(n)]
                is_nan = len(numbers) < 2 if nan_wins else not numbers
                expected.append(math.nan if is_nan else choose(numbers, key=order))
            assert_floats(found.view(DTYPES[kind]), expected)


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


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_widening_16_bits(kind: str) -> None:
    x = torch.arange(-(2**15), 2**15, dtype=torch.int16)
    found = evaluate(f"cvt.f32.{kind} d, a;", "f32", ("b16", x))
    assert_floats(found, x.view(DTYPES[kind]).double().tolist())


def test_integer_conversions() -> None:
    x, _ = integers(torch.int64)
    x = x.unique()
    for source, to in product(["s16", "u16", "s32", "u32", "s64", "u64"], repeat=2):
        bits, to_bits = int(source[1:]), int(to[1:])
        a = torch.tensor([wrapped(int(v), bits) for v in x], dtype=DTYPES[f"b{bits}"])
        found = evaluate(f"cvt.{to}.{source} d, a;", f"b{to_bits}", (f"b{bits}", a))
        numbers = signed(a) if source[0] == "s" else unsigned(a)
        assert signed(found) == [wrapped(v, to_bits) for v in numbers]
    low = evaluate("cvt.s16.s8 d, a;", "b16", ("b16", torch.tensor([0x180, 0x7F, -1]).short()))
    assert signed(low) == [-128, 127, -1]
    numbers = torch.tensor([0, 1, -1, 2**31 - 1, -(2**31), 16777217], dtype=torch.int32)
    found = evaluate("cvt.rn.f32.u32 d, a;", "f32", ("b32", numbers))
    assert_floats(found, [rounded(Fraction(v), torch.float32) for v in unsigned(numbers)])


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


# Threads


def test_lanes_of_a_warp_exchange_numbers() -> None:
    for mode, b in product(["bfly", "idx", "up", "down"], [0, 1, 5, 16, 31]):
        for clamp in (0x1F, 0x181F, 0x1C1F) if mode != "up" else (0, 0x1800):
            out = torch.full((64,), -1, dtype=torch.int32)
            text = module(
                f"shfl.sync.{mode}.b32 %r1, %r0, {b}, {clamp}, -1;"
                "mad.wide.u32 %rd19, %r0, 4, %rd0; st.global.u32 [%rd19], %r1;",
                1,
            )
            launch(text, [out], threads=64)
            segment = clamp >> 8 & 31
            for thread, found in enumerate(out.tolist()):
                lane = thread % 32
                limit = (lane & segment) | (clamp & 31 & ~segment)
                j = {
                    "bfly": lane ^ b, "up": lane - b, "down": lane + b,
                    "idx": (lane & segment) | (b & ~segment),
                }[mode]  # fmt: skip
                is_there = j >= limit if mode == "up" else j <= limit
                assert found == thread - lane + (j if is_there else lane)


def test_branches_part_and_meet() -> None:
    """Each thread goes round a loop as often as its number says."""
    out = torch.zeros(300, dtype=torch.int32)
    body = """
mov.u32 %r1, 0;
mov.u32 %r2, %r0;
setp.eq.u32 %p1, %r2, 0;
@%p1 bra DONE;
AGAIN:
add.u32 %r1, %r1, %r2;
sub.u32 %r2, %r2, 1;
setp.ne.u32 %p1, %r2, 0;
@%p1 bra AGAIN;
DONE:
and.b32 %r3, %r0, 1;
setp.eq.u32 %p2, %r3, 0;
@!%p2 add.u32 %r1, %r1, 1000000;
mad.wide.u32 %rd19, %r0, 4, %rd0;
st.global.u32 [%rd19], %r1;
"""
    launch(module(body, 1), [out], threads=300)
    assert out.tolist() == [n * (n + 1) // 2 + n % 2 * 1000000 for n in range(300)]


def test_matrices_of_a_warp() -> None:
    """Row r of matrix m is at the address of lane 8 m + r; a lane has a row's word."""
    body = """
shl.b32 %r1, %r0, 4;
mov.u32 %r9, memory;
add.u32 %r9, %r9, %r1;
shl.b32 %r2, %r0, 2;
st.shared.u32 [%r9], %r2;
add.u32 %r3, %r2, 1; st.shared.u32 [%r9+4], %r3;
add.u32 %r3, %r2, 2; st.shared.u32 [%r9+8], %r3;
add.u32 %r3, %r2, 3; st.shared.u32 [%r9+12], %r3;
bar.sync 0;
ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r4, %r5, %r6, %r7}, [%r9];
mad.wide.u32 %rd19, %r0, 16, %rd0;
st.global.v4.u32 [%rd19], {%r4, %r5, %r6, %r7};
"""
    out = torch.zeros(32, 4, dtype=torch.int32)
    launch(module(body, 1, shared=512), [out])
    for lane, matrix in product(range(32), range(4)):
        row, word = lane // 4, lane % 4
        assert out[lane, matrix] == 4 * (8 * matrix + row) + word


# Faults

STORE = "mad.wide.u32 %rd19, %r0, {}, %rd0; st.global.{} [%rd19{}], {};"


def fault(body: str, tensors: Sequence[Tensor] = (), threads: int = 64, shared: int = 1024) -> str:
    with pytest.raises(ptx_on_cpu.Fault) as caught:
        launch(module(body, len(tensors), shared=shared), tensors, threads)
    return str(caught.value)


def test_an_access_beyond_a_tensor() -> None:
    t = torch.zeros(63, dtype=torch.int32)
    message = fault(STORE.format(4, "u32", "", "%r0"), [t])
    assert message.startswith("memcheck: 4 bytes at ")
    assert "an allocation of 252 bytes ends 0 bytes before" in message
    assert "thread 63 of block (0, 0, 0): st.global.u32 [%rd19], %r0" in message


def test_a_misaligned_vector() -> None:
    t = torch.zeros(1024, dtype=torch.int32)
    message = fault(STORE.format(16, "v2.u32", "+4", "{%r0, %r0}"), [t])
    assert message.startswith("memcheck: 8 bytes at ") and "are misaligned" in message


def test_memory_of_no_tensor() -> None:
    other = torch.zeros(64, dtype=torch.int32)
    body = f"mov.u64 %rd1, {other.data_ptr()}; st.global.u32 [%rd1], %r0;"
    assert "not in the memory that the launch was given" in fault(body, [torch.zeros(1)])


def test_a_tensor_that_was_freed() -> None:
    t = torch.zeros(2**16, dtype=torch.int32)
    text = module(STORE.format(4, "u32", "", "%r0"), 1)
    (kernel,) = ptx_on_cpu.load(text).values()
    value = ctypes.c_uint64(t.data_ptr())
    pointers = (ctypes.c_void_p * 1)(ctypes.addressof(value))
    del t
    with pytest.raises(ptx_on_cpu.Fault, match="memcheck: "):
        kernel.launch((1, 1, 1), (32, 1, 1), 0, ctypes.addressof(pointers))


SHARED = "mov.u32 %r9, memory; shl.b32 %r1, %r0, 2; add.u32 %r1, %r1, %r9;"


def test_shared_memory_that_was_not_written() -> None:
    assert fault(SHARED + "ld.shared.u32 %r2, [%r1];").startswith("initcheck: byte 0 ")


def test_shared_memory_has_an_end() -> None:
    message = fault(SHARED + "st.shared.u32 [%r1+800], %r0;")
    assert message.startswith("memcheck: 4 bytes at 0x400 of shared memory are not among its 1024")


EXCHANGE = (
    SHARED
    + """
st.shared.u32 [%r1], %r0;
{}
xor.b32 %r2, %r1, 4;
ld.shared.u32 %r3, [%r2];
"""
)


def test_a_race_is_found() -> None:
    launch(module(EXCHANGE.format("bar.sync 0;"), 0, shared=1024), [], 64)
    assert fault(EXCHANGE.format("")).startswith("racecheck: byte 4 of shared memory is read after")
    every_thread_writes = SHARED + "st.shared.u32 [%r9], %r0;"
    assert "is written after thread 0 wrote it" in fault(every_thread_writes)
    read_then_write = EXCHANGE.format("bar.sync 0;") + "st.shared.u32 [%r1], %r0;"
    assert "is written after thread 1 read it" in fault(read_then_write)


def test_a_barrier_that_some_threads_do_not_reach() -> None:
    skip = "setp.eq.u32 %p1, %r0, 63; @%p1 bra END; bar.sync 0; END:"
    assert fault(skip).startswith("synccheck: thread 63 has ended, others wait at a barrier")
    two = "setp.eq.u32 %p1, %r0, 63; @%p1 bra B; bar.sync 0; bra END; B: bar.sync 0; END:"
    assert fault(two).startswith("synccheck: thread 63 waits at another barrier than thread 0")


def test_a_lane_that_has_left_its_warp() -> None:
    body = "setp.eq.u32 %p1, %r0, 5; @%p1 bra END; shfl.sync.bfly.b32 %r1, %r0, 1, 31, -1; END:"
    assert fault(body).startswith("synccheck: lane 5 of the warp should take part")


def test_an_unknown_opcode() -> None:
    with pytest.raises(ptx_on_cpu.UnknownOpcode, match="does not know frobnicate.b32 %r1, %r0"):
        launch(module("frobnicate.b32 %r1, %r0;", 0), [])


def test_a_register_of_another_width() -> None:
    with pytest.raises(ValueError, match="%rd0 has 8 bytes, not 4"):
        launch(module("add.u32 %r1, %r0, %rd0;", 1), [torch.zeros(1)])


def test_too_many_threads() -> None:
    with pytest.raises(ptx_on_cpu.Fault, match="512 threads in a block of k, which is for 256"):
        launch(module("", 0, most=256), [], threads=512)
