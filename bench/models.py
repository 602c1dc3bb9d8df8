"""``python -m bench.models``: what replace_activations does to every module class of transformers
and timm in which an activation occurs. Prints counts of classes, and writes a line for each class.

Each class is built on the meta device with its default configuration. An activation that the
configuration chooses and that is no gate, such as ReLU, is first replaced with SiLU. The report is
compared with bench/gate_occurrences.py: a gate in neither of its lists is a silent miss.
"""

import csv
import inspect
import logging
import os
import re
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from torch import nn
from tqdm import tqdm

from bench import gate_occurrences as occurrences
from bench.module_classes import Configs, classes_of, instance, timm_modules, transformers_modules
from gelu_kernels.replace import Replacement, replace_activations
from gelu_kernels.replace.activations import gate_of

PACKAGES = {"transformers": transformers_modules, "timm": timm_modules}
CHECKED = "(a forward pass was run too)"
Line = tuple[str, str]  # a row of the table, and more about the class


def chosen(module: nn.Module) -> list[str]:
    """The activations that the configuration chooses."""
    bases = [b for b in type(module).__mro__ if "__init__" in vars(b) and b is not nn.Module]
    text = "".join(inspect.getsource(b.__init__) for b in bases if b is not object)
    return [n for n in re.findall(r"self\.(\w*act\w*) = ACT2FN", text) if n in module._modules]


def lines_of(module: nn.Module, recompute: bool) -> Iterator[Line]:
    """What one call does to the module itself; its children are classes of their own."""
    for name in chosen(module):
        if not gate_of(getattr(module, name)):
            setattr(module, name, nn.SiLU())
    held = {n for n, v in [*vars(module).items(), *module._modules.items()] if gate_of(v)}
    methods = occurrences.methods(type(module))
    before = {name: occurrences.in_source(method) for name, method in methods.items()}
    ran = occurrences.dispatched(module) is not None
    if ran:
        yield CHECKED, ""
    result = replace_activations(module, fuse_bias=True, recompute=recompute, verbose=False)
    changed = {c.name: c.new for c in result.changed if c.owner is module}
    for new in changed.values():
        if isinstance(new, tuple):
            yield from ((operator.partition("(")[0], operator) for operator in new)
    for kind in ("left_alone", "not_fused", "not_recomputed"):
        for name, why in getattr(result, kind).items():
            if "." not in name:
                yield f"{kind.replace('_', ' ')}: {generic(why)}", f"{name}: {why}"
    if ran and occurrences.dispatched(module) is None:
        yield "fails since", ""
    yield from missed(module, result, before, held)
    result.restore()  # activations that several classes share


def generic(why: str) -> str:
    """The reason without its remedy and the names of one class."""
    why, _, _ = why.partition("; ")
    why = re.sub(r"it calls \w+ itself", "it calls a gate itself", why)
    why = re.sub(r"^[\w.]+ is not known", "it is not known", why)
    return re.sub(r"^[\w.]+(?= (before it|stands|is no plain|is reached))", "...", why)


def missed(
    module: nn.Module, result: Replacement, before: dict[str, list[str]], held: set[str]
) -> Iterator[Line]:
    changed = {c.name: c.new for c in result.changed if c.owner is module}
    patterns = " ".join(o for new in changed.values() if isinstance(new, tuple) for o in new)
    functions = {name for name in held if not isinstance(getattr(module, name), nn.Module)}
    covered = functions & {*re.findall(r"\w+", patterns)}
    for name in held - covered - changed.keys() - result.left_alone.keys():
        yield "silent miss", f"{name} is not replaced"
    for name, found in before.items() if not gate_of(module) else ():
        operators = [o for o in changed.get(name, ()) if not held & {*re.findall(r"\w+", o)}]
        if len(found) > len(operators) and name not in result.left_alone:
            yield "silent miss", f"{name}: {', '.join(found)}"
    if not result.left_alone and (seen := occurrences.dispatched(module)):
        yield "silent miss", f"dispatched: {', '.join(sorted(set(seen)))}"


@click.command(help=__doc__)
@click.option("--package", type=click.Choice([*PACKAGES]), multiple=True, default=[*PACKAGES])
@click.option("--recompute", is_flag=True, help="Ask for recompute too.")
@click.option("--only", default="", help="A part of the names of the classes to look at.")
@click.option(
    "--to", type=click.Path(path_type=Path), help="A CSV file with a line for each class."
)
def main(package: tuple[str, ...], recompute: bool, only: str, to: Path | None) -> None:
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    with (to or Path(os.devnull)).open("w", newline="") as file:
        for name in package:
            classes = [c for module in PACKAGES[name]() for c in classes_of(module)]
            classes = [c for c in classes if only in c.__name__ and occurrences.may_hold(c)]
            counts = count(name, classes, recompute, csv.writer(file))
            table = Table("", "classes", title=f"{name}: {len(classes)} classes")
            for row, number in counts.most_common():
                table.add_row(row, str(number))
            Console().print(table)


def count(name: str, classes: list[type[nn.Module]], recompute: bool, writer: Any) -> Counter[str]:
    """The classes in each row of the table; one class may be in several."""
    configs, counts = Configs(), Counter()
    for cls in tqdm(classes, desc=name):
        module = instance(cls, configs)
        lines = [("not built", module)] if isinstance(module, str) else lines_of(module, recompute)
        found = [*lines]
        if all(row == CHECKED for row, _ in found):
            found.append(("no gate", ""))
        writer.writerows((name, cls.__module__, cls.__name__, *line) for line in found)
        counts.update({row for row, _ in found})
    return counts


if __name__ == "__main__":
    main()
