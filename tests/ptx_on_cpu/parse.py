"""Parses PTX, as far as nvcc and Triton use the language."""

import re
from functools import cache
from typing import NamedTuple


class Statement(NamedTuple):
    """An instruction: ``@guard opcode operands``."""

    guard: str
    opcode: str
    operands: tuple[str, ...]
    place: tuple[int, int]  # file and line of the source

    def __str__(self) -> str:
        return " ".join(filter(None, [self.guard, self.opcode, ", ".join(self.operands)]))


class Parameter(NamedTuple):
    name: str
    size: int
    alignment: int


class Entry(NamedTuple):
    """A kernel. The names of an inner scope are followed by its number."""

    name: str
    parameters: list[Parameter]
    most_threads: int
    exact_threads: bool
    registers: dict[str, int]  # their widths in bytes
    statements: list[Statement]
    labels: dict[str, int]  # the index of the statement after each


class Variable(NamedTuple):
    size: int
    alignment: int


# A body has scopes of inline assembly, and in these are vectors.
_BODY = r"[^{}]*"
for _ in range(3):
    _BODY = rf"[^{{}}]*(?:\{{{_BODY}\}}[^{{}}]*)*"
_ENTRY = re.compile(rf"\.entry\s+([\w$]+)\s*\((.*?)\)([^{{]*)\{{({_BODY})\}}", re.DOTALL)
_PARAMETER = re.compile(
    r"\.param\s+(?:\.align\s+(\d+)\s+)?\.[bsuf](\d+)\s+"
    r"(?:\.ptr\s+(?:\.global\s+)?(?:\.align\s+\d+\s+)?)?([\w$]+)(?:\[(\d+)\])?"
)
_THREADS = re.compile(r"\.(maxntid|reqntid)\s+(\d+)(?:\s*,\s*(\d+))?(?:\s*,\s*(\d+))?")
_VARIABLE = re.compile(
    r"\.(shared|global)\s+\.align\s+(\d+)\s+\.[bu](\d+)\s+([\w$]+)(?:\[(\d*)\])?\s*;"
)
_FILE = re.compile(r'^\s*\.file\s+(\d+)\s+"([^"]*)"(?:\s+"([^"]*)")?', re.MULTILINE)

# The tokens of a kernel's body. A brace that opens a vector operand is part of a statement. LLVM
# may declare local memory that it no longer needs; the machine knows no access to it.
_TOKEN = re.compile(
    r"""
    \s+ | //[^\n]*
  | (?P<brace>[{}])
  | \.loc\s+(?P<file>\d+)\s+(?P<line>\d+)[^\n]*
  | \.reg\s+\.(?P<type>\w+)\s+(?P<names>[^;]+);
  | \.(?:shared|local|pragma)\b[^;]*;
  | (?P<label>[\w$]+):
  | (?:(?P<guard>@!?[\w%$]+)\s+)?(?P<opcode>[a-z][\w.:]*)\s*(?P<operands>[^;]*);
    """,
    re.VERBOSE,
)
_OPERAND = re.compile(r"\{[^}]*\}|\[[^\]]*\]|[^,\s]+")
_NAME = re.compile(r"[A-Za-z_%$][\w$%]*")


def _width(type: str) -> int:
    """In bytes."""
    return 1 if type == "pred" else int(re.sub(r"\D", "", type)) // 8


def _body(text: str) -> tuple[dict[str, int], list[Statement], dict[str, int]]:
    registers: dict[str, int] = {}
    statements: list[Statement] = []
    labels: dict[str, int] = {}
    scopes: list[dict[str, str]] = []
    place = (0, 0)
    opened = at = 0
    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None:
            raise ValueError(f"PTX that is not understood: {text[at : at + 80].splitlines()[0]!r}")
        at = token.end()
        if brace := token["brace"]:
            opened += brace == "{"
            scopes.append({}) if brace == "{" else scopes.pop()
        elif token["line"]:
            place = int(token["file"]), int(token["line"])
        elif type := token["type"]:
            for name in map(str.strip, token["names"].split(",")):
                stem, _, count = name.rstrip(">").partition("<")
                names = [f"{stem}{i}" for i in range(int(count))] if count else [stem]
                if scopes:
                    scopes[-1].update({name: f"{name}@{opened}" for name in names})
                    names = [scopes[-1][name] for name in names]
                registers.update(dict.fromkeys(names, _width(type)))
        elif label := token["label"]:
            labels[label] = len(statements)
        elif opcode := token["opcode"]:
            opcode = opcode.replace(".shared::cta", ".shared")  # the same; Triton 3.8 writes it out
            guard, operands = token["guard"] or "", token["operands"]
            for scope in scopes:
                if scope:
                    rename = lambda m, scope=scope: scope.get(m[0], m[0])  # noqa: E731
                    guard, operands = _NAME.sub(rename, guard), _NAME.sub(rename, operands)
            statements.append(Statement(guard, opcode, tuple(_OPERAND.findall(operands)), place))
    return registers, statements, labels


def _parameters(text: str) -> list[Parameter]:
    found = []
    for alignment, bits, name, count in _PARAMETER.findall(text):
        size = int(bits) // 8
        found.append(Parameter(name, size * int(count or 1), int(alignment or size)))
    return found


def entries(module: str) -> dict[str, re.Match]:
    """The text of each kernel, for ``entry``."""
    return {found[1]: found for found in _ENTRY.finditer(module)}


def entry(found: re.Match) -> Entry:
    name, parameters, directives, body = found.groups()
    most, exact = 1024, False
    if limit := _THREADS.search(directives):
        kind, *sizes = limit.groups()
        most = int(sizes[0]) * int(sizes[1] or 1) * int(sizes[2] or 1)
        exact = kind == "reqntid"
    return Entry(name, _parameters(parameters), most, exact, *_body(body))


@cache
def variables(module: str, space: str) -> dict[str, Variable]:
    """Those in "shared" or "global" memory. Dynamic shared memory has size 0."""
    found = [v for v in _VARIABLE.finditer(module) if v[1] == space]
    counts = [1 if v[5] is None else int(v[5] or 0) for v in found]
    return {
        v[4]: Variable(int(v[3]) // 8 * count, int(v[2]))
        for v, count in zip(found, counts, strict=True)
    }


@cache
def files(module: str) -> dict[int, str]:
    """By their numbers."""
    return {
        int(number): f"{first}/{second}" if second else first
        for number, first, second in _FILE.findall(module)
    }
