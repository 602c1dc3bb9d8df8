"""torch.utils.flop_counter counts as many FLOPs as for the separate functions."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from gelu_kernels import functional, nn
from tests.cases import each
from tests.new_process import python

ROWS, FEATURES, HIDDEN = (3, 5), 8, 12

Function = Callable[..., Tensor]
# Our function and the separate ones, of x, up and a linear layer's parameters.
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


@each(pair=PAIRS)
def test_functions(pair: str) -> None:
    """One product forward and two backward, each of 2 rows x features x hidden; fewer where a
    tensor needs no gradient."""
    ours, separate = PAIRS[pair]
    given = tensors()
    x, up, w, b = given
    assert counted(lambda: ours(*given)) == 3 * 2 * 15 * FEATURES * HIDDEN
    transposed = x, up, torch.randn(HIDDEN, FEATURES).t().requires_grad_(), b
    frozen_inputs = x.detach(), up.detach(), w, b
    frozen_layer = x, up, w.detach(), b.detach()
    for tried in (given, transposed, frozen_inputs, frozen_layer):
        assert counted(lambda g=tried: ours(*g)) == counted(lambda g=tried: separate(*g))


@each(glu=[False, True])
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


@pytest.mark.slow  # an import of torch each; above, one of the orders is tested
@each(order=ORDERS)
def test_registered_whenever_the_counter_is_imported(order: str) -> None:
    assert python("import sys\nimport torch\n" + ORDERS[order] + COUNT) == "True\nTrue\n"
