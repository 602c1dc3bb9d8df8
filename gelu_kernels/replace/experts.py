"""The clamped gated linear unit of gpt-oss, which its experts compute in a method."""

import ast
import inspect
import textwrap
from functools import cache, partial

import torch
from torch import Tensor

from gelu_kernels import functional
from gelu_kernels.replace.replacement import Replacement

_ALPHA = 1.702
_SOURCE = """
def method(self, gate_up):
    gate, up = gate_up[..., ::2], gate_up[..., 1::2]
    gate = gate.clamp(min=None, max=self.limit)
    up = up.clamp(min=-self.limit, max=self.limit)
    glu = gate * torch.sigmoid(gate * self.alpha)
    gated_output = (up + 1) * glu
    return gated_output
"""


def clamped_glu(gate_up: Tensor, limit: float) -> Tensor:
    """Of columns that take turns; they are read where they lie."""
    gate, up = gate_up[..., ::2], gate_up[..., 1::2]
    return functional.glu(gate, up, gate="logistic_1702", limit=limit, up_offset=1.0)


def replace_clamped_glu(result: Replacement, prefix: str, owner: torch.nn.Module) -> None:
    """Where the class of the owner has a method with this very source."""
    if not {"alpha", "limit"} <= vars(owner).keys():
        return
    method = _clamped_method(type(owner))
    if not method or method in vars(owner):
        return
    name = f"{prefix}.{method}" if prefix else method
    if owner.alpha == _ALPHA and owner.limit > 0:
        result.set(owner, name, partial(clamped_glu, limit=owner.limit))
    else:
        result.left_alone[name] = f"its alpha is {owner.alpha}, its limit {owner.limit}"


@cache
def _clamped_method(cls: type[torch.nn.Module]) -> str:
    for name, function in inspect.getmembers(cls, inspect.isfunction):
        try:
            if _body(inspect.getsource(function)) == _body(_SOURCE):
                return name
        except (OSError, SyntaxError):
            continue
    return ""


def _body(source: str) -> tuple[list[str], list[str]]:
    """The names of the arguments, and the statements but for comments."""
    function = ast.parse(textwrap.dedent(source)).body[0]
    if not isinstance(function, ast.FunctionDef):
        return [], []
    return [a.arg for a in function.args.args], [ast.dump(line) for line in function.body]
