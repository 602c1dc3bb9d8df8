"""How the gates' operators run on DTensors: each rank on its own part, where that is possible.

All are pointwise but for the bias, which goes along the last dimension, and its gradient, which
sums over the others. Some are linear in an argument: a sum that is pending there, Partial, may stay
pending in the result.
"""

from functools import partial

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.distributed.tensor import Partial, Replicate, Shard
from torch.distributed.tensor.experimental import register_sharding
from torch.distributed.tensor.placement_types import Placement

# The placements of the results and of the arguments, None where one is not a tensor.
Sharding = tuple[list[Placement], list[Placement | None]]

ops = torch.ops.gelu_kernels

# The results, like x but for `dbias`, and the arguments in each of which, the others fixed, it is
# linear. The arguments are like x but for `bias`.
POINTWISE = {
    ops.gate_forward.default: (["y"], []),
    ops.gate_backward.default: (["dx"], ["dy"]),
    ops.gate_backward_bias.default: (["dx", "dbias"], ["dy"]),
    ops.gate_double_backward.default: (["dx"], ["ddx", "dy"]),
    ops.glu_forward.default: (["y"], ["up"]),
    ops.glu_backward.default: (["dx", "dup"], ["dy"]),
    ops.glu_halves_forward.default: (["y"], []),
    ops.glu_halves_backward.default: (["dx"], ["dy"]),
}
# A cut of the last dimension would not cut both halves.
HALVES = {ops.glu_halves_forward.default, ops.glu_halves_backward.default}


def _shardings(op: OpOverload, *args: Tensor | str | None) -> list[Sharding]:
    """What one dimension of a mesh may do."""
    results, linear_in = POINTWISE[op]
    names = [argument.name for argument in op._schema.arguments]
    arguments = dict(zip(names, args, strict=True))
    tensors = {name: arg for name, arg in arguments.items() if hasattr(arg, "placements")}

    def sharding(
        result: Placement, dbias: Placement, others: Placement, **named: Placement
    ) -> Sharding:
        """The arguments that are `named`, and all others."""
        return (
            [dbias if name == "dbias" else result for name in results],
            [named.get(name, others) if name in tensors else None for name in arguments],
        )

    # A cut that no argument has is not offered: torch would prefer it to reducing x.
    last = arguments["x"].ndim - 1
    cuts = {
        last if name == "bias" else p.dim
        for name, tensor in tensors.items()
        for p in tensor.placements
        if p.is_shard()
    }
    shardings = [sharding(Replicate(), Replicate(), Replicate())]
    for dim in sorted(cuts - {last} if op in HALVES else cuts):
        if dim == last:
            shardings.append(sharding(Shard(dim), Shard(0), Shard(dim), bias=Shard(0)))
        else:
            shardings.append(sharding(Shard(dim), Partial(), Shard(dim), bias=Replicate()))
    # A mean may not stay pending beside the sums that are dbias on another dimension.
    for reduction in ["sum"] if "dbias" in results else ["sum", "avg"]:
        pending = Partial(reduction)
        for name in linear_in:
            shardings.append(sharding(pending, pending, Replicate(), **{name: pending}))
    return shardings


for op in POINTWISE:
    register_sharding(op)(partial(_shardings, op))
