"""A module of each class in gelu_kernels.nn, with every option that changes its parameters."""

from typing import NamedTuple

import torch

from gelu_kernels import nn
from tests.cases import each

SHAPE = (4, 6)  # of an input that every module takes


class Case(NamedTuple):
    name: str
    options: dict[str, object]

    def __call__(self) -> torch.nn.Module:
        return getattr(nn, self.name)(**self.options)

    def __str__(self) -> str:
        return f"{self.name}({', '.join(f'{name}={v}' for name, v in self.options.items())})"


LAYER = {"in_features": 6, "out_features": 5}
UNIT = {"in_features": 3, "out_features": 5}
BLOCK = {"features": 6, "hidden": 8}
CASES = [
    Case("GELU", {"approximate": "tanh"}),
    Case("GELU", {"save": "8bit"}),
    Case("GELU", {"save": "4bit", "dither": True}),
    Case("SiLU", {}),
    Case("LaLU", {}),
    Case("CauchyGate", {}),
    Case("GEGLU", {}),
    Case("SwiGLU", {}),
    Case("SOIMap", {}),
    Case("BiasGELU", {"features": 6}),
    Case("CDFGate", {}),
    Case("CDFGate", {"loc": 0.5, "scale": 2.0, "num_parameters": 6}),
    Case("CDFGate", {"loc": 0.5, "scale": 2.0, "learnable": False}),
    Case("LinearGELU", LAYER),
    Case("LinearGELU", LAYER | {"bias": False}),
    Case("GateLinear", LAYER),
    Case("GateLinear", LAYER | {"gate_bias": True}),
    Case("GateLinear", LAYER | {"bias": False, "gate_bias": True}),
    Case("GLULinear", UNIT),
    Case("GLULinear", UNIT | {"bias": False}),
    Case("MLP", BLOCK),
    Case("MLP", BLOCK | {"glu": True}),
    Case("MLP", BLOCK | {"bias": False}),
]
assert {case.name for case in CASES} == set(nn.__all__)

every_case = each(case=CASES)
