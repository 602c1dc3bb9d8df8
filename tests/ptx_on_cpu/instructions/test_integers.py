"""Instructions on integers, bits and predicates, compared with the PTX ISA's definitions."""

import operator
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from random import Random

import torch
from torch import Tensor

from tests.cases import each
from tests.ptx_on_cpu.instructions.kernels import DTYPES, evaluate

random = Random(0)
NUMBERS = [0, 1, 2, 3, 5, 7, 15, 16, 17, 27, 31, 32, 33, 40, 63, 64, 65, 255, 256, 0x7FFF, 0x8000]
NUMBERS += [0xFFFF, 0x7FFFFFFF, 0x123456789ABCDEF, 1 << 62, -(1 << 63)]
NUMBERS += [-x for x in NUMBERS]
NUMBERS += [random.getrandbits(64) for _ in range(20)]

# The instruction without its operands, the types of its result and of these, and what the result is
# before it is cut to the width of its type; None where the PTX ISA does not say.
Row = tuple[str, str, list[str], Callable[..., int | None]]


def bits_of(kind: str) -> int:
    return int(kind[1:])


def cut(x: int, kind: str) -> int:
    """To the range of a type such as s16."""
    if kind == "pred":
        return x
    half = 1 << bits_of(kind) - 1 if kind[0] == "s" else 0
    return (x + half) % (1 << bits_of(kind)) - half


def rows_of(kinds: list[str]) -> list[tuple[int, ...]]:
    """All pairs of numbers of the first two types, each with a random one of the third."""
    numbers = [sorted({cut(x, kind) for x in NUMBERS}) for kind in kinds]
    return [(*row, *map(random.choice, numbers[2:])) for row in product(*numbers[:2])]


def register(kind: str) -> str:
    return kind if kind == "pred" else f"b{bits_of(kind)}"


def operand(kind: str, column: tuple[int, ...]) -> tuple[str, Tensor]:
    signed = [cut(x, f"s{bits_of(kind)}") for x in column]
    return register(kind), torch.tensor(signed, dtype=DTYPES[register(kind)])


def check(rows: Callable[..., Iterator[Row]], **arguments: object) -> None:
    for opcode, result, kinds, function in rows(**arguments):
        expected = {values: function(*values) for values in rows_of(kinds)}
        said = {values: x for values, x in expected.items() if x is not None}
        name, *constants = opcode.split(", ")
        operands = ", ".join(["d", *"abc"[: len(kinds)], *constants])
        columns = map(operand, kinds, zip(*said, strict=True))
        found = evaluate(f"{name} {operands};", register(result), *columns).tolist()
        for (values, x), y in zip(said.items(), found, strict=True):
            assert cut(y, result) == cut(x, result), (opcode, values)


SAME_BITS = {"add": operator.add, "sub": operator.sub, "mul.lo": operator.mul}
COMPARISONS = {name: getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")}
LOGIC = {"and": operator.and_, "or": operator.or_, "xor": operator.xor}
EXTREMES = {"min": min, "max": max}


def quotient(a: int, b: int, kind: str) -> int | None:
    """Towards zero."""
    if b == 0 or (b == -1 and a == -(1 << bits_of(kind) - 1)):
        return None
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def remainder(a: int, b: int, kind: str) -> int | None:
    q = quotient(a, b, kind)
    return None if q is None else a - q * b


def arithmetic(bits: int) -> Iterator[Row]:
    signed, unsigned = f"s{bits}", f"u{bits}"
    for name, function in SAME_BITS.items():
        yield f"{name}.{unsigned}", unsigned, [unsigned] * 2, function
    yield f"neg.{signed}", signed, [signed], operator.neg
    yield f"mad.lo.{signed}", signed, [signed] * 3, lambda a, b, c: a * b + c
    for kind in (signed, unsigned):
        for name, function in EXTREMES.items():
            yield f"{name}.{kind}", kind, [kind] * 2, function
        for name, function in {"div": quotient, "rem": remainder}.items():
            yield f"{name}.{kind}", kind, [kind] * 2, partial(function, kind=kind)
        for name, function in COMPARISONS.items():
            yield f"setp.{name}.{kind}", "pred", [kind] * 2, function
        if bits < 64:
            wide = f"{kind[0]}{2 * bits}"
            yield f"mul.wide.{kind}", wide, [kind] * 2, operator.mul
            yield f"mad.wide.{kind}", wide, [kind, kind, wide], lambda a, b, c: a * b + c
    if bits > 16:
        yield f"mul.hi.{unsigned}", unsigned, [unsigned] * 2, lambda a, b: a * b >> bits


@each(bits=[16, 32, 64])
def test_arithmetic_and_comparisons(bits: int) -> None:
    check(arithmetic, bits=bits)


def logic(bits: int) -> Iterator[Row]:
    kind = f"u{bits}"
    for name, function in LOGIC.items():
        yield f"{name}.b{bits}", kind, [kind] * 2, function
    yield f"not.b{bits}", kind, [kind], operator.inv
    for name in ("eq", "ne"):
        yield f"setp.{name}.b{bits}", "pred", [kind] * 2, COMPARISONS[name]
    # A shift by more than the width shifts everything out.
    yield f"shl.b{bits}", kind, [kind, "u32"], lambda a, n: a << min(n, bits)
    for kind in (f"u{bits}", f"s{bits}"):
        yield f"shr.{kind}", kind, [kind, "u32"], lambda a, n: a >> min(n, bits)
    if bits == 32:
        yield "shf.l.wrap.b32", "u32", ["u32"] * 3, lambda a, b, n: (b << 32 | a) << n % 32 >> 32


@each(bits=[16, 32, 64])
def test_logic_and_shifts(bits: int) -> None:
    check(logic, bits=bits)


def extracted(a: int, position: int, length: int, kind: str) -> int:
    """Beyond the field the copies of its sign, which is the register's if the field goes on."""
    bits, position, length = bits_of(kind), position & 0xFF, length & 0xFF
    field = range(position, min(position + length, bits))
    value = sum((a >> k & 1) << k - position for k in field)
    if kind[0] == "u" or length == 0:
        return value
    sign = a >> min(position + length - 1, bits - 1) & 1
    return value - (sign << len(field))


def inserted(a: int, b: int, position: int, length: int, bits: int = 32) -> int:
    field = range(position, min(position + length, bits))
    kept = sum(b & 1 << k for k in range(bits) if k not in field)
    return kept + sum((a >> k - position & 1) << k for k in field)


def permuted(a: int, b: int, selector: int) -> int:
    picked = [(a | b << 32) >> 8 * (selector >> 4 * k & 7) & 0xFF for k in range(4)]
    signs = [selector >> 4 * k & 8 for k in range(4)]
    bytes_ = [
        (0xFF if x & 0x80 else 0) if sign else x for x, sign in zip(picked, signs, strict=True)
    ]
    return sum(byte << 8 * k for k, byte in enumerate(bytes_))


def looked_up(a: int, b: int, c: int, table: int) -> int:
    indices = [(a >> k & 1) << 2 | (b >> k & 1) << 1 | c >> k & 1 for k in range(32)]
    return sum((table >> i & 1) << k for k, i in enumerate(indices))


def fields() -> Iterator[Row]:
    for kind in ("u32", "s32", "u64", "s64"):
        yield f"bfe.{kind}", kind, [kind, "u32", "u32"], partial(extracted, kind=kind)
    for position, length in [*product((0, 5, 31), (0, 1, 27, 32)), (32, 1), (40, 5), (1, 40)]:
        function = partial(inserted, position=position, length=length)
        yield f"bfi.b32, {position}, {length}", "u32", ["u32"] * 2, function
    for position, length in [*product((0, 5, 32, 63), (0, 1, 32, 64)), (64, 1), (80, 5)]:
        function = partial(inserted, position=position, length=length, bits=64)
        yield f"bfi.b64, {position}, {length}", "u64", ["u64"] * 2, function
    yield "prmt.b32", "u32", ["u32"] * 3, permuted
    yield "prmt.b32, 0x3340U", "u32", ["u32"] * 2, partial(permuted, selector=0x3340)
    for table in (0xE4, 0x80, 0xFE, 0x96, 0x01, 0xCA):
        yield f"lop3.b32, {table:#x}", "u32", ["u32"] * 3, partial(looked_up, table=table)


def test_fields() -> None:
    check(fields)


def conversions() -> Iterator[Row]:
    kinds = [f"{sign}{bits}" for sign in "su" for bits in (16, 32, 64)]
    for source, result in product(kinds, kinds):
        yield f"cvt.{result}.{source}", result, [source], lambda x: x
    for opcode in ("cvt.s16.s8", "cvt.s8.s16"):  # in registers of 16 bits
        yield opcode, "s16", ["s16"], lambda x: cut(x, "s8")


def test_conversions() -> None:
    check(conversions)


@each(kind=["s", "u"])
def test_pairs(kind: str) -> None:
    """The first number of a pair is the low half."""
    a, b = zip(*rows_of([f"{kind}16"] * 2), strict=True)
    pairs = [
        ("b32", torch.stack([t, t.flip(0)], 1).view(torch.int32).flatten())
        for _, t in (operand(f"{kind}16", a), operand(f"{kind}16", b))
    ]
    for name, function in {"add": operator.add, **EXTREMES}.items():
        found = evaluate(f"{name}.{kind}16x2 d, a, b;", "b32", *pairs)
        low, high = found.view(torch.int16).view(-1, 2).unbind(1)
        expected = [cut(function(x, y), "s16") for x, y in zip(a, b, strict=True)]
        assert (low.tolist(), high.tolist()) == (expected, expected[::-1]), name


def test_predicates() -> None:
    p, q = (torch.tensor(t, dtype=torch.uint8) for t in ([0, 0, 1, 1], [0, 1, 0, 1]))
    operands = ("pred", p), ("pred", q)
    for name, function in LOGIC.items():
        found = evaluate(f"{name}.pred d, a, b;", "pred", *operands)
        assert torch.equal(found, function(p, q)), name
    assert torch.equal(evaluate("not.pred d, a;", "pred", operands[0]), 1 - p)
    for true in (-1, 1):
        body = f"{{ .reg .pred p; mov.pred p, {true}; not.pred p, p; selp.b32 d, 5, a, p; }}"
        assert evaluate(body, "b32", ("b32", torch.tensor([7]).int())).tolist() == [7]
