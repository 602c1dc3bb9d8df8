"""The floating-point operations of our own products of matrices, for
``torch.utils.flop_counter``, as soon as that is imported.

All others are products of torch's own operators, which it counts.
"""

from collections.abc import Sequence
from math import prod

import torch

from gelu_kernels.after_import import after_import


def register() -> None:
    after_import("torch.utils.flop_counter", _register_now)


def _register_now() -> None:
    from torch.utils.flop_counter import register_flop_formula

    ops = torch.ops.gelu_kernels
    operators = [ops.gate_linear_backward_weight, ops.glu_linear_backward_weight]
    register_flop_formula(operators)(of_weight_gradient)


def of_weight_gradient(
    dy_shape: Sequence[int], *args: object, out_shape: Sequence[int], **kwargs: object
) -> int:
    """Of dy^T hidden, where dy is ``(*, features)`` and the result ``(features, hidden)``."""
    return 2 * prod(dy_shape) * out_shape[-1]
