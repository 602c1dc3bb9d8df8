"""A ``torch.nn.Sequential`` that fuses a gate with the linear layer before or after it."""

from torch import Tensor
from torch.nn import Module, Sequential

from gelu_kernels.plain import as_written
from gelu_kernels.replace import fused, reasons
from gelu_kernels.replace.kinds import is_kind
from gelu_kernels.replace.options import Found, Options

_FORWARD = as_written(Sequential.forward, Sequential.__module__)


def is_sequential(cls: type[Module]) -> bool:
    return cls.forward is _FORWARD and cls.__iter__ is Sequential.__iter__


def run(self: Sequential, input: Tensor, options: Options) -> Tensor:
    """``Sequential.forward``, which decides at each module whether to fuse it with the next."""
    names, i = list(self._modules), 0
    while i < len(names):
        operator = step(self, names[i : i + 3], options)
        module = self._modules[names[i]]
        after = self._modules[names[i + 1]] if operator else None
        if operator == "gate_linear":
            input = fused.gate_linear(module, after, input)
        elif operator == "bias_gelu":
            input = fused.bias_gelu(after, fused.product(module, input))
        else:
            input = module(input)
        i += 2 if operator else 1
    return input


def step(owner: Sequential, names: list[str], options: Options) -> str:
    """The function of fused.py that computes the first two modules; empty if none does."""
    if len(names) < 2:
        return ""
    first, second = names[:2]
    if options.recompute and is_kind(owner, first, "gate"):
        is_linear = is_kind(owner, second, "linear") or is_kind(owner, second, "conv1d")
        return "gate_linear" if is_linear else ""
    is_gelu = options.fuse_bias and is_kind(owner, first, "linear with bias")
    is_gelu = is_gelu and is_kind(owner, second, "gelu")
    return "bias_gelu" if is_gelu and step(owner, names[1:], options) != "gate_linear" else ""


def search(owner: Sequential, options: Options) -> Found:
    """The pairs of modules that one operator computes, and why others are not."""
    found, operators = Found(), []
    names, i = list(owner._modules), 0
    while i < len(names):
        operator = step(owner, names[i : i + 3], options)
        gate = names[i + 1] if operator == "bias_gelu" else names[i]
        if operator:
            operators.append(f"{operator}({names[i]}, {names[i + 1]})")
        if options.fuse_bias and not operator and is_kind(owner, gate, "gelu"):
            before = reasons.not_plain_before(names[i - 1]) if i else reasons.NO_LINEAR_BEFORE
            found.not_fused[gate] = before
        is_gate = is_kind(owner, gate, "gate") or is_kind(owner, gate, "gelu")
        if options.recompute and operator != "gate_linear" and is_gate:
            later = names[names.index(gate) + 1 :]
            after = reasons.not_plain_after(later[0]) if later else reasons.NO_LINEAR_AFTER
            found.not_recomputed[gate] = after
        i += 2 if operator else 1
    if operators:
        found.operators["forward"] = tuple(operators)
    return found
