"""Numbers and tables as the docs show them."""

from collections.abc import Callable, Iterable


def two_digits(x: float) -> str:
    return f"{x:.1f}" if x < 9.95 else f"{x:.0f}"


def span(values: Iterable[float], text: Callable[[float], str] = "{:.0f}".format) -> str:
    """From the lowest to the highest; nothing where there are none."""
    found = sorted(values)
    return "-".join(dict.fromkeys(map(text, (found[0], found[-1])))) if found else ""


def table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """In Markdown, with columns as wide as their cells."""
    lines = [list(header), *map(list, rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    lines.insert(1, ["-" * width for width in widths])
    cells = ([c.ljust(w) for c, w in zip(line, widths, strict=True)] for line in lines)
    return "".join(f"| {' | '.join(line)} |\n" for line in cells)


def power_of_2(elements: int) -> str:
    exponent = elements.bit_length() - 1
    return f"2^{exponent}" if elements == 2**exponent else str(elements)
