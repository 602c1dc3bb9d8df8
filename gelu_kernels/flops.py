"""Tells ``torch.utils.flop_counter``, once it is imported, the FLOPs of our matrix products: the
gradients of weights.

All others are computed by torch's own operators, which it counts already.
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
    """The operations of dy^T hidden; dy is ``(*, features)``, the result ``(features, hidden)``."""
    return 2 * prod(dy_shape) * out_shape[-1]
