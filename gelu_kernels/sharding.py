"""How operators run on DTensors: each rank on its own part, where that is possible.

They work on each element alone, but for the bias, which lies along the last dimension, and its
gradient, which sums over the other dimensions. Some are linear in an argument: a sum that is
pending there, Partial, may stay pending in the result.
"""

from functools import partial

from torch import Tensor
from torch.distributed.tensor import Partial, Replicate, Shard
from torch.distributed.tensor.experimental import register_sharding
from torch.distributed.tensor.placement_types import Placement

from gelu_kernels.operators import CORE, CoreOperator, Extent

# The placements of the results and of the arguments, None where one is not a tensor.
Sharding = tuple[list[Placement], list[Placement | None]]


def _shardings(op: CoreOperator, *args: Tensor | str | None) -> list[Sharding]:
    """What one dimension of a mesh may do."""
    names = [argument.name for argument in op.overload._schema.arguments]
    arguments = dict(zip(names, args, strict=True))
    tensors = {name: arg for name, arg in arguments.items() if hasattr(arg, "placements")}
    along_rows = [name for name, e in op.inputs.items() if e is Extent.COLUMNS]
    is_sum = [e is Extent.COLUMNS for e in op.outputs.values()]

    def sharding(
        result: Placement, column_sum: Placement, others: Placement, **named: Placement
    ) -> Sharding:
        """The arguments that are `named`, and all others."""
        return (
            [column_sum if sums else result for sums in is_sum],
            [named.get(name, others) if name in tensors else None for name in arguments],
        )

    # A cut that no argument has is not offered: torch would prefer it to reducing x.
    last = arguments["x"].ndim - 1
    cuts = {
        last if name in along_rows else p.dim
        for name, tensor in tensors.items()
        for p in tensor.placements
        if p.is_shard()
    }
    shardings = [sharding(Replicate(), Replicate(), Replicate())]
    # A cut of the last dimension would not cut both halves.
    for dim in sorted(cuts - {last} if op.halves else cuts):
        biases = dict.fromkeys(along_rows, Shard(0) if dim == last else Replicate())
        column_sum = Shard(0) if dim == last else Partial()
        shardings.append(sharding(Shard(dim), column_sum, Shard(dim), **biases))
    # A mean may not stay pending beside the sums of columns on another dimension.
    for reduction in ["sum"] if any(is_sum) else ["sum", "avg"]:
        pending = Partial(reduction)
        for name in op.linear_in:
            shardings.append(sharding(pending, pending, Replicate(), **{name: pending}))
    return shardings


for op in CORE:
    if Extent.BITS not in (*op.inputs.values(), *op.outputs.values()):  # see soi_sharding
        register_sharding(op.overload)(partial(_shardings, op))
