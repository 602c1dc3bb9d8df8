"""The API page: every public function, module and operator with its signature and the first lines
of its docstring."""

import inspect
import re
from collections.abc import Iterable
from types import ModuleType

import gelu_kernels
from bench.markdown import table
from gelu_kernels import compile, functional, nn
from gelu_kernels.operators.table import PUBLIC

ROLE = re.compile(r":\w+:`~?([^`]*)`")  # of reStructuredText


def as_markdown(docstring: str) -> str:
    """The first paragraph in one line."""
    text = " ".join(docstring.split("\n\n")[0].split()).replace("``", "`")
    return ROLE.sub(lambda found: f"`{found[1].removeprefix('gelu_kernels.')}`", text)


def signature(name: str, member: object) -> str:
    """Without annotations, which the docstring has in words."""
    found = inspect.signature(member)
    parameters = [p.replace(annotation=p.empty) for p in found.parameters.values()]
    return f"{name}{found.replace(parameters=parameters, return_annotation=found.empty)}"


def entry(name: str, member: object) -> str:
    is_result = inspect.isclass(member) and issubclass(member, tuple)
    shown = name if is_result else signature(name, member).replace("'", '"')
    return f"**`{shown}`**\n\n{as_markdown(inspect.getdoc(member))}\n"


def section(title: str, module: ModuleType, names: Iterable[str]) -> str:
    entries = (entry(name, getattr(module, name)) for name in names)
    return "\n".join([f"## {title}\n\n`{module.__name__}`\n", *entries])


def operators() -> str:
    """Which function is which operator, and the schemas."""
    rows = [
        (
            f"`{op.name}({', '.join(op.operands)})`",
            ", ".join(f"`{name}`" for name in op.functions),
            ", ".join(f"`{name}`" for name in op.modules),
            op.formula,
        )
        for op in PUBLIC
    ]
    found = table(("operator", "functional", "nn", "formula"), rows)
    schemas = dict.fromkeys(str(op.overload._schema).partition("::")[2] for op in PUBLIC)
    listed = "\n".join(schemas)
    return (
        "## Operators\n\n`torch.ops.gelu_kernels`; g is a gate, m a random mask.\n\n"
        f"{found}\n```\n{listed}\n```\n"
    )


def reference() -> str:
    from gelu_kernels.distributed import tensor_parallel  # imports DTensor, which takes a second

    whole = "decompositions", "replace_activations", "replace_gelu"
    return "\n".join(
        [
            section("Functions", functional, functional.__all__),
            section("Modules", nn, nn.__all__),
            section("Models and exported programs", gelu_kernels, whole),
            section("Inductor", compile, ("enable_fusion", "disable_fusion")),
            section("Tensor parallelism", tensor_parallel, ("ColwiseParallel", "RowwiseParallel")),
            operators(),
        ]
    )
