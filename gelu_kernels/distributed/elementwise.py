"""How operators run on DTensors: each rank on its own part, where that is possible.

They work element by element, except for vectors: a bias lies along the last dimension, and its
gradient sums over the others; a weight lies along the others, and its gradient sums over the last.
loc and scale lie like a bias or are one number, whose gradient sums over everything. Operators that
are linear in an argument may leave a pending sum there (Partial) pending in the result.
"""

from dataclasses import replace
from functools import partial

from torch import Tensor
from torch.distributed.tensor import Partial, Replicate, Shard
from torch.distributed.tensor.experimental import register_sharding
from torch.distributed.tensor.placement_types import Placement

from gelu_kernels.operators.table import CORE
from gelu_kernels.operators.types import IN_ROW_MAJOR_ORDER, CoreOperator, Extent

# Tensors with one number for many elements; their gradients are sums.
SHARED = Extent.COLUMNS, Extent.ROWS, Extent.NUMBER

# The placements of the results and of the arguments; None for an argument that is not a tensor.
Sharding = tuple[list[Placement], list[Placement | None]]


def _shardings(op: CoreOperator, *args: Tensor | str | None) -> list[Sharding]:
    """The ways to shard over one dimension of a mesh."""
    arguments = op.named(args)
    tensors = {name: arg for name, arg in arguments.items() if hasattr(arg, "placements")}
    columns = [name for name, extent in op.inputs.items() if extent is Extent.COLUMNS]
    single = [name for name in columns if name in tensors and tensors[name].ndim == 0]
    op = replace(op, single=(*single, *(f"d{name}" for name in single)))
    extents = list(op.outputs.values())
    is_sum = any(extent in SHARED for extent in extents)

    def sharding(
        results: list[Placement], others: Placement, named: dict[str, Placement]
    ) -> Sharding:
        """`named` gives the placements of some arguments, `others` the placements of the rest."""
        return (
            results,
            [named.get(name, others) if name in tensors else None for name in arguments],
        )

    last = arguments["x"].ndim - 1

    def cut(extent: Extent, dim: int) -> Placement | None:
        """The placement of a tensor when the matrices are cut along a dimension, which the tensor
        may not have."""
        if extent is Extent.NUMBER:
            return None
        if extent is Extent.COLUMNS:
            return Shard(0) if dim == last else None
        return Shard(dim) if extent is not Extent.ROWS or dim != last else None

    # A cut that no argument has is not offered, as torch would prefer it to reducing x.
    cuts = {
        last if op.inputs[name] is Extent.COLUMNS else p.dim
        for name, tensor in tensors.items()
        for p in tensor.placements
        if p.is_shard()
    }
    shardings = [sharding([Replicate() for _ in extents], Replicate(), {})]
    # Cutting the last dimension would not cut both halves.
    for dim in sorted(cuts - {last} if op.halves else cuts):
        results = [cut(extent, dim) or Partial() for extent in extents]
        shared = {name: e for name, e in op.inputs.items() if e in SHARED}
        named = {name: cut(extent, dim) or Replicate() for name, extent in shared.items()}
        shardings.append(sharding(results, Shard(dim), named))
    # A mean may not stay pending if another dimension sums.
    for reduction in ["sum"] if is_sum else ["sum", "avg"]:
        pending = Partial(reduction)
        for name in op.linear(arguments):
            shardings.append(sharding([pending for _ in extents], Replicate(), {name: pending}))
    return shardings


for op in CORE:
    extents = {*op.inputs.values(), *op.outputs.values()}
    if not extents & IN_ROW_MAJOR_ORDER.keys():  # see random.py
        register_sharding(op.overload)(partial(_shardings, op))
