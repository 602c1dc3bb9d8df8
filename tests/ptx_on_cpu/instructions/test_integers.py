"""The machine that executes PTX in the tests: integers, beside what the PTX ISA says of them."""

from collections.abc import Callable
from itertools import product

import pytest
import torch
from torch import Tensor

from tests.ptx_on_cpu.instructions.kernels import DTYPES, evaluate


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


@pytest.mark.parametrize("kind", ["s", "u"])
def test_pairs(kind: str) -> None:
    """The first is the low half."""
    a, b = integers(torch.int16)
    numbers = signed if kind == "s" else unsigned
    operands = [("b32", torch.stack([t, t.flip(0)], 1).view(torch.int32).flatten()) for t in (a, b)]
    for name, function in {"add": lambda x, y: x + y, "min": min, "max": max}.items():
        found = evaluate(f"{name}.{kind}16x2 d, a, b;", "b32", *operands)
        low, high = found.view(torch.int16).view(-1, 2).unbind(1)
        results = [function(x, y) for x, y in zip(numbers(a), numbers(b), strict=True)]
        assert signed(low) == [wrapped(x, 16) for x in results], name
        assert signed(high) == [wrapped(x, 16) for x in results[::-1]], name


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


@pytest.mark.parametrize("kind", ["s32", "u32", "s64", "u64"])
def test_quotients(kind: str) -> None:
    """Towards zero."""
    bits = int(kind[1:])
    a, b = integers(DTYPES[f"b{bits}"])
    least = -(2 ** (bits - 1))
    kept = (b != 0) & ~((a == least) & (b == -1))  # of which PTX says nothing
    a, b = a[kept], b[kept]
    numbers = signed if kind[0] == "s" else unsigned
    for opcode in ("div", "rem"):
        found = evaluate(f"{opcode}.{kind} d, a, b;", f"b{bits}", (f"b{bits}", a), (f"b{bits}", b))
        for x, y, z in zip(numbers(a), numbers(b), numbers(found), strict=True):
            quotient = abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)
            assert z == (quotient if opcode == "div" else x - quotient * y)


def test_products() -> None:
    a, b = integers(torch.int32)
    c, d = integers(torch.int64)
    narrow, wide = (("b32", a), ("b32", b)), (("b64", c), ("b64", d))
    pairs = list(zip(unsigned(a), unsigned(b), strict=True))
    signed_pairs = list(zip(signed(a), signed(b), strict=True))
    assert signed(evaluate("mul.hi.u32 d, a, b;", "b32", *narrow)) == [
        wrapped(x * y >> 32, 32) for x, y in pairs
    ]
    short = torch.tensor([3, -1, 2**15 - 1], dtype=torch.int16)
    found = evaluate("mul.wide.u16 d, a, b;", "b32", ("b16", short), ("b16", short.flip(0)))
    assert found.tolist() == [3 * (2**15 - 1), wrapped((2**16 - 1) ** 2, 32), 3 * (2**15 - 1)]
    found = evaluate("mul.wide.s16 d, a, b;", "b32", ("b16", short), ("b16", short.roll(1)))
    assert found.tolist() == [3 * (2**15 - 1), -3, 1 - 2**15]
    assert signed(evaluate("mul.wide.u32 d, a, b;", "b64", *narrow)) == [
        wrapped(x * y, 64) for x, y in pairs
    ]
    assert signed(evaluate("mul.wide.s32 d, a, b;", "b64", *narrow)) == [
        x * y for x, y in signed_pairs
    ]
    assert signed(evaluate("mul.hi.u64 d, a, b;", "b64", *wide)) == [
        wrapped(x * y >> 64, 64) for x, y in zip(unsigned(c), unsigned(d), strict=True)
    ]
    for kind, numbers in {"s": signed_pairs, "u": pairs}.items():
        sums = evaluate(f"mad.wide.{kind}32 d, a, b, c;", "b64", *narrow, ("b64", d[: len(a)]))
        assert signed(sums) == [
            wrapped(x * y + z, 64) for (x, y), z in zip(numbers, signed(d[: len(a)]), strict=True)
        ]
    assert signed(evaluate("mad.lo.s32 d, a, b, a;", "b32", *narrow)) == [
        wrapped(x * y + x, 32) for x, y in signed_pairs
    ]


def permuted(x: int, y: int, selector: int) -> int:
    bytes_ = [(x | y << 32) >> 8 * k & 0xFF for k in range(8)]
    chosen = [(selector >> 4 * k & 7, selector >> 4 * k & 8) for k in range(4)]
    picked = [(0xFF if bytes_[k] & 0x80 else 0) if sign else bytes_[k] for k, sign in chosen]
    return sum(byte << 8 * k for k, byte in enumerate(picked))


@pytest.mark.parametrize("bits", [32, 64])
def test_extracted_fields(bits: int) -> None:
    (a,) = integers({32: torch.int32, 64: torch.int64}[bits], count=1)
    for position, length in product((0, 1, 5, 31, 32, 40, 63, 64), (0, 1, 5, 27, 32, 40, 63, 64)):
        found = [
            evaluate(f"bfe.{kind}{bits} d, a, {position}, {length};", f"b{bits}", (f"b{bits}", a))
            for kind in "us"
        ]
        field = range(position, min(position + length, bits))
        for x, e, s in zip(*map(unsigned, (a, *found)), strict=True):
            unsigned_field = sum((x >> k & 1) << k - position for k in field)
            assert e == unsigned_field
            sign = x >> min(position + length - 1, bits - 1) & 1 if length else 0
            above = sum(1 << k for k in range(len(field), bits)) if sign else 0
            assert s == unsigned_field + above


def test_fields() -> None:
    """bfi, prmt and lop3, bit by bit."""
    torch.manual_seed(1)
    a, b = (torch.randint(-(2**31), 2**31, (4096,)).int() for _ in range(2))
    for position, length in product((0, 1, 5, 31, 32, 40), (0, 1, 5, 27, 31, 32, 40)):
        operands = ("b32", a[:64]), ("b32", b[:64])
        inserted = evaluate(f"bfi.b32 d, a, b, {position}, {length};", "b32", *operands)
        field = range(position, min(position + length, 32))
        for x, y, i in zip(*map(unsigned, (a[:64], b[:64], inserted)), strict=True):
            kept = sum(y & 1 << k for k in range(32) if k not in field)
            assert i == kept + sum((x >> k - position & 1) << k for k in field)
    for selector in (0x3340, 0x5410, 0x7632, 0x0123, 0x8888, 0xFA50):
        found = evaluate(f"prmt.b32 d, a, b, {selector:#x}U;", "b32", ("b32", a), ("b32", b))
        for x, y, d in zip(*map(unsigned, (a[:64], b[:64], found[:64])), strict=True):
            assert d == permuted(x, y, selector)
    selectors = a.flip(0)
    found = evaluate("prmt.b32 d, a, b, c;", "b32", *[("b32", t) for t in (a, b, selectors)])
    for x, y, selector, d in zip(*map(unsigned, (a, b, selectors, found)), strict=True):
        assert d == permuted(x, y, selector)
    for table in (0xE4, 0x80, 0xFE, 0x96, 0x01, 0xCA):
        found = evaluate(
            f"lop3.b32 d, a, b, 0x80008000, {table:#x};", "b32", ("b32", a), ("b32", b)
        )
        for x, y, d in zip(*map(unsigned, (a[:64], b[:64], found[:64])), strict=True):
            z = 0x80008000
            index = [(x >> k & 1) << 2 | (y >> k & 1) << 1 | z >> k & 1 for k in range(32)]
            assert d == sum((table >> i & 1) << k for k, i in enumerate(index))


def test_predicates() -> None:
    p, q = (torch.tensor(t, dtype=torch.uint8) for t in ([0, 0, 1, 1], [0, 1, 0, 1]))
    operands = ("pred", p), ("pred", q)
    for name, expected in {"and": p & q, "or": p | q, "xor": p ^ q}.items():
        assert torch.equal(evaluate(f"{name}.pred d, a, b;", "pred", *operands), expected)
    assert torch.equal(evaluate("not.pred d, a;", "pred", operands[0]), 1 - p)


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


def test_a_true_predicate_may_be_minus_one() -> None:
    for true in (-1, 1):
        body = f"{{ .reg .pred p; mov.pred p, {true}; not.pred p, p; selp.b32 d, 5, a, p; }}"
        assert evaluate(body, "b32", ("b32", torch.tensor([7]).int())).tolist() == [7]
