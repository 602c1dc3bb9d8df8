"""FLOPs by torch.utils.flop_counter: as many as the separate functions have."""

import subprocess
import sys
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from gelu_kernels import functional, nn

ROWS, FEATURES, HIDDEN = (3, 5), 8, 12

Function = Callable[..., Tensor]
# Ours, and the separate functions, of x, up and a linear layer's parameters.
PAIRS: dict[str, tuple[Function, Function]] = {
    "gate": (
        lambda x, up, w, b: functional.gate_linear(x, w),
        lambda x, up, w, b: F.linear(F.gelu(x), w),
    ),
    "biases": (
        lambda x, up, w, b: functional.gate_linear(x, w, b, gate_bias=x[0, 0]),
        lambda x, up, w, b: F.linear(F.gelu(x + x[0, 0]), w, b),
    ),
    "GLU": (
        lambda x, up, w, b: functional.glu_linear(x, up, w, b),
        lambda x, up, w, b: F.linear(F.gelu(x) * up, w, b),
    ),
    "halves": (
        lambda x, up, w, b: functional.glu_linear(torch.cat([x, up], -1), None, w),
        lambda x, up, w, b: F.linear(F.gelu(x) * up, w),
    ),
}


def counted(call: Callable[[], Tensor]) -> int:
    with FlopCounterMode(display=False) as counter:
        call().sum().backward()
    return counter.get_total_flops()


def tensors() -> list[Tensor]:
    shapes = (*ROWS, HIDDEN), (*ROWS, HIDDEN), (FEATURES, HIDDEN), (FEATURES,)
    return [torch.randn(shape, requires_grad=True) for shape in shapes]


@pytest.mark.parametrize("pair", PAIRS)
def test_functions(pair: str) -> None:
    """One product forward and two backward, each of 2 rows x features x hidden."""
    ours, separate = PAIRS[pair]
    given = tensors()
    assert counted(lambda: ours(*given)) == counted(lambda: separate(*given))
    assert counted(lambda: ours(*given)) == 3 * 2 * 15 * FEATURES * HIDDEN


@pytest.mark.parametrize("pair", PAIRS)
def test_a_transposed_weight(pair: str) -> None:
    ours, separate = PAIRS[pair]
    x, up, _, b = tensors()
    w = torch.randn(HIDDEN, FEATURES).t().requires_grad_()
    assert counted(lambda: ours(x, up, w, b)) == counted(lambda: separate(x, up, w, b))


@pytest.mark.parametrize("pair", PAIRS)
def test_frozen(pair: str) -> None:
    """What backward does not compute is not counted."""
    ours, separate = PAIRS[pair]
    for frozen in (0, 2):
        given = tensors()
        for t in given[frozen : frozen + 2]:
            t.requires_grad_(False)
        assert counted(lambda g=given: ours(*g)) == counted(lambda g=given: separate(*g))


@pytest.mark.parametrize("glu", [False, True])
def test_mlp(glu: bool) -> None:
    mlp = nn.MLP(FEATURES, HIDDEN, glu=glu)
    x = torch.randn(*ROWS, FEATURES, requires_grad=True)

    def separate() -> Tensor:
        hidden = mlp.up(x)
        gate, up = hidden.chunk(2, -1) if glu else (hidden, 1.0)
        return mlp.down(F.gelu(gate) * up)

    assert counted(lambda: mlp(x)) == counted(separate)


ORDERS = {
    "before": "import torch.utils.flop_counter\nimport gelu_kernels",
    "after": """
import gelu_kernels
assert "torch.utils.flop_counter" not in sys.modules
from torch.utils import flop_counter
""",
    "with DTensor": "import gelu_kernels\nimport torch.distributed.tensor",
}
COUNT = """
from torch.utils.flop_counter import flop_registry
ops = torch.ops.gelu_kernels
print(ops.gate_linear_backward_weight in flop_registry)
print(ops.glu_linear_backward_weight in flop_registry)
"""


@pytest.mark.parametrize(
    "order",
    ["before", *[pytest.param(o, marks=pytest.mark.slow) for o in ("after", "with DTensor")]],
)
def test_registered_whenever_the_counter_is_imported(order: str) -> None:
    script = "import sys\nimport torch\n" + ORDERS[order] + COUNT
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (result.stdout, result.returncode) == ("True\nTrue\n", 0), result.stderr
