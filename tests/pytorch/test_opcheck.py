"""torch.library.opcheck of every operator, the tags, and the schemas of GELU."""

import pytest
import torch

from gelu_kernels.operators.table import CORE, PUBLIC
from gelu_kernels.operators.types import CoreOperator, PublicOperator
from tests.calls import CALLS, Call, normal
from tests.cases import each
from tests.layouts import LAYOUTS

# The other checks compare two runs, which differ for a random operator.
OF_RANDOM = ("test_schema", "test_autograd_registration", "test_faketensor")
SLOW_CASES = [
    (torch.float32, "transposed", (3, 4, 8), True),
    (torch.float64, "contiguous", (3, 8), True),
    (torch.float32, "contiguous", (0, 8), True),
    (torch.float16, "contiguous", (3, 8), True),
    (torch.float32, "second half", (5, 6), True),
    (torch.float32, "contiguous", (5, 2), True),
    (torch.bfloat16, "contiguous", (3, 8), False),
]


def check(call: Call, dtype: torch.dtype, layout: str, shape: tuple, grad: bool, device: str):
    def make(*s: int) -> torch.Tensor:
        return LAYOUTS[layout](lambda *t: normal(*t, dtype=dtype, device=device), s)

    tensors = call.inputs(shape, make)
    tensors = [t.detach().requires_grad_(grad and t.is_floating_point()) for t in tensors]
    arguments, keywords = call.arguments(*tensors, gate=call.gates[-1])
    chosen = {"test_utils": OF_RANDOM} if call.is_random else {}
    torch.library.opcheck(call.op.overload, arguments, keywords, **chosen)


# One call of each operator, with all its optional tensors.
FULL = {call.op.name: call for call in CALLS}.values()


@each(call=FULL)
def test_opcheck(call: Call, device: str) -> None:
    check(call, torch.float32, "transposed", (3, 4, 8), True, device)


@pytest.mark.slow
@each(call=CALLS, case=SLOW_CASES)
def test_opcheck_of_more_inputs(call: Call, case: tuple, device: str) -> None:
    check(call, *case, device)


@each(op=[*CORE, *PUBLIC])
def test_tags(op: CoreOperator | PublicOperator) -> None:
    assert torch.Tag.pt2_compliant_tag in op.overload.tags
    is_random = isinstance(op, PublicOperator) and op.family in ("soi", "dropout")
    assert (torch.Tag.nondeterministic_seeded in op.overload.tags) == is_random


def test_schemas_of_gelu() -> None:
    """A change here breaks saved programs."""
    schemas = [
        str(getattr(torch.ops.gelu_kernels, name).default._schema)
        for name in ("fused_gelu", "fused_bias_gelu")
    ]
    assert schemas == [
        'gelu_kernels::fused_gelu(Tensor x, *, str approximate="none", str? save=None, '
        "Tensor? seed=None) -> Tensor",
        'gelu_kernels::fused_bias_gelu(Tensor x, Tensor bias, *, str approximate="none", '
        "str? save=None, Tensor? seed=None) -> Tensor",
    ]
