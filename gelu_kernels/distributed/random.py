"""Operators with a mask or a code on DTensors: each rank draws the bits of its own part of the
whole tensor, and backward keeps the placement of the mask or code.

``register_sharding`` cannot express this, because what an operator does depends on the rank: these
rules replace DTensor's own dispatch.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from math import prod

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.distributed_c10d import _resolve_process_group
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.distributed.tensor.placement_types import Placement

from gelu_kernels import compatibility
from gelu_kernels.operators.table import CORE, core
from gelu_kernels.operators.types import IN_ROW_MAJOR_ORDER, CoreOperator, Extent

ops = torch.ops.gelu_kernels
_library = torch.library.Library("gelu_kernels", "FRAGMENT")  # kept for the life of the process


class MaskOf(Placement):
    """The placement of a mask or code: each rank has the bits of its own part of a tensor whose
    placement is `of`."""

    def __init__(self, of: Placement) -> None:
        super().__init__()
        self.of = of

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MaskOf) and self.of == other.of

    def __hash__(self) -> int:
        return hash((MaskOf, self.of))

    def __repr__(self) -> str:
        return f"MaskOf({self.of!r})"


def _draw(op: CoreOperator, *args: object) -> tuple[DTensor, DTensor]:
    """All ranks use the seed of the mesh's first rank, whatever they drew. As in DTensor's own
    dispatch, a plain tensor with one number is assumed to be the same on all ranks."""
    arguments = op.named(args)
    if arguments.get("bits") == 4:
        op = replace(op, nibbles=("code",))
    tensors = {name: arguments.pop(name) for name in op.inputs}
    seed = tensors.pop("seed")
    index = [arguments.pop(name, 0) for name in ("offset", "row_length", "row_stride")]
    gate, *numbers = arguments.values()
    placed = {
        name: t
        for name, t in tensors.items()
        if name == "x" or (t is not None and (t.ndim > 0 or isinstance(t, DTensor)))
    }
    mesh = _mesh_of(op, placed)
    if any(index):
        raise ValueError(
            f"gelu_kernels::{op.name}: offset, row_length and row_stride must be 0 for a DTensor, "
            f"which knows its place, got {', '.join(map(str, index))}"
        )
    x = placed["x"]
    placements = _in_rows(op, x)
    local = list((tensors | _local(op, placed, placements, x.ndim)).values())
    seed = seed.full_tensor() if isinstance(seed, DTensor) else seed
    divided = [i for i in range(mesh.ndim) if mesh.size(i) > 1]
    if mesh.get_coordinate() is None or seed is None:
        y, mask = op.overload(*local, seed, gate, *numbers)
    else:
        y, mask = ops.draw_shard(
            op.name,
            local,
            seed,
            gate,
            numbers,
            x.shape,
            [p.dim if isinstance(p := placements[i], Shard) else -1 for i in divided],
            [mesh.get_group(i).group_name for i in divided],
        )
    shape, stride = x.shape, _dense_stride(x)
    if op.halves:
        shape = (*x.shape[:-1], x.shape[-1] // 2)
        stride = torch.empty(shape, device="meta").stride()
    masks = [MaskOf(p) for p in placements]
    _, mask_extent = op.outputs.values()
    return (
        DTensor.from_local(y, mesh, placements, shape=shape, stride=stride),
        DTensor.from_local(mask, mesh, masks, shape=mask_extent.shape(shape), stride=(1,)),
    )


def _differentiate(op: CoreOperator, *args: object) -> DTensor | tuple[DTensor, ...]:
    arguments = op.named(args)
    tensors = {n: t for n in op.inputs if (t := arguments[n]) is not None}
    mesh = _mesh_of(op, tensors)
    # A mean may not stay pending if another dimension sums dbias.
    is_sum = Extent.COLUMNS in op.outputs.values()
    dy = _placed_as_mask(op, tensors, ("sum",) if is_sum else ("sum", "avg"))
    placements = [p if isinstance(p, Shard) else Replicate() for p in dy.placements]
    last = Shard(dy.ndim - 1)
    of_sums = [
        Shard(0) if p == last else Partial() if isinstance(p, Shard) else p for p in dy.placements
    ]
    mask = _mask_of(op)
    others = {name: t for name, t in tensors.items() if name not in ("dy", mask)}
    local = _local(op, others, placements, dy.ndim)
    local |= {"dy": dy.to_local(), mask: tensors[mask].to_local()}
    results = op.overload(*(arguments | local).values())

    def whole(name: str, result: Tensor) -> DTensor:
        if op.outputs[name] is Extent.COLUMNS:
            return DTensor.from_local(result, mesh, of_sums, shape=dy.shape[-1:], stride=(1,))
        like = tensors.get(name[1:], dy)
        stride = _dense_stride(like)
        return DTensor.from_local(result, mesh, dy.placements, shape=like.shape, stride=stride)

    if isinstance(results, Tensor):
        return whole(*op.outputs, results)
    return tuple(whole(name, t) for name, t in zip(op.outputs, results, strict=True))


def _mask_of(op: CoreOperator) -> str:
    """The name of the operator's mask or code."""
    return next(name for name, extent in op.inputs.items() if extent in IN_ROW_MAJOR_ORDER)


def _local(
    op: CoreOperator, tensors: dict[str, DTensor], placements: list[Placement], ndim: int
) -> dict[str, Tensor]:
    """This rank's parts of the tensors when matrices have these placements: a vector lies along
    the last dimension, a number is replicated."""
    along_last = [Shard(0) if p == Shard(ndim - 1) else Replicate() for p in placements]

    def own(name: str, t: DTensor) -> Tensor:
        if op.inputs[name] is Extent.COLUMNS:
            where = along_last if t.ndim > 0 else [Replicate()] * len(placements)
        else:
            where = placements
        return t.redistribute(placements=where).to_local()

    return {name: own(name, t) for name, t in tensors.items()}


def _mesh_of(op: CoreOperator, arguments: dict[str, Tensor]) -> DeviceMesh:
    """The mesh that all these tensors share."""
    mesh = None
    for name, t in arguments.items():
        if not isinstance(t, DTensor):
            raise TypeError(
                f"gelu_kernels::{op.name}: {name} must be a DTensor as the others are, "
                f"got {type(t)}"
            )
        mesh = mesh or t.device_mesh
        if t.device_mesh != mesh:
            raise ValueError(
                f"gelu_kernels::{op.name}: {name} must be on the mesh of the others, {mesh}, "
                f"got {t.device_mesh}"
            )
    return mesh


def _in_rows(op: CoreOperator, x: DTensor) -> list[Placement]:
    """Placements of x in which each rank's part consists of rows of equal length at equal
    distances, as the operators need: the placements of x, with the last ones replicated if they
    prevent this. Cutting the last dimension would not cut both halves."""
    mesh, last = x.device_mesh, Shard(x.ndim - 1)
    stays = [type(p) is Shard and not (op.halves and p == last) for p in x.placements]
    placements = [p if ok else Replicate() for p, ok in zip(x.placements, stays, strict=True)]
    for i in reversed(range(mesh.ndim)):
        cut = sorted({p.dim for j, p in enumerate(placements) if p.is_shard() and mesh.size(j) > 1})
        if len(cut) < 2 or (len(cut) == 2 and prod(x.shape[: cut[0]]) == 1):
            break
        placements[i] = Replicate()
    return placements


def _placed_as_mask(
    op: CoreOperator, tensors: dict[str, DTensor], stay_pending: tuple[str, ...]
) -> DTensor:
    """dy, placed like the tensor of the mask; where that is replicated, a sum may stay pending."""
    name = _mask_of(op)
    dy, mask = tensors["dy"], tensors[name]
    placements = []
    for p, of_mask in zip(dy.placements, mask.placements, strict=True):
        of = of_mask.of if isinstance(of_mask, MaskOf) else of_mask
        if not isinstance(of_mask, MaskOf | Replicate):
            raise ValueError(
                f"gelu_kernels::{op.name}: {name} must be a result of a forward pass or "
                f"replicated, got placements {mask.placements}"
            )
        pending = isinstance(p, Partial) and p.reduce_op in stay_pending
        placements.append(p if pending and of.is_replicate() else of)
    return dy.redistribute(placements=placements)


def _dense_stride(x: DTensor) -> tuple[int, ...]:
    """The strides of a dense result like x, without its gaps and expanded dimensions."""
    if x.is_contiguous():
        return x.stride()
    return torch.empty_like(torch.empty_strided(x.shape, x.stride(), device="meta")).stride()


# A separate operator computes the offset at run time. As a constant of a compiled graph, one rank's
# offset would reach the others through torch.compile's cache.
_library.define(
    "draw_shard(str op, Tensor?[] tensors, Tensor seed, str gate, Scalar[] numbers, "
    "SymInt[] shape, int[] dims, str[] groups) -> (Tensor y, Tensor mask)",
    tags=torch.Tag.pt2_compliant_tag,
)


def draw_shard(
    op: str,
    tensors: Sequence[Tensor | None],
    seed: Tensor,
    gate: str,
    numbers: Sequence[float],
    shape: Sequence[int],
    dims: Sequence[int],
    groups: Sequence[str],
) -> tuple[Tensor, Tensor]:
    """Runs ``op`` on this rank's part of an x of this shape, with the first rank's seed. `tensors`
    are the operator's first arguments, starting with x.

    Each process group in turn divides the dimension given in `dims`; -1 divides none.
    """
    start, size = [0] * len(shape), list(shape)
    # One of the CPU too: a process group may be a GPU's alone.
    seed = seed.to(tensors[0].device, non_blocking=True, copy=True)
    for dim, name in zip(dims, groups, strict=True):
        group = _resolve_process_group(name)
        dist.broadcast(seed, group=group, group_src=0)
        if dim >= 0:
            chunk = -(-size[dim] // group.size())  # as torch.chunk
            begin = min(group.rank() * chunk, size[dim])
            start[dim] += begin
            size[dim] = min(chunk, size[dim] - begin)
    x = tensors[0]
    if tuple(x.shape) != tuple(size):
        raise ValueError(
            f"gelu_kernels::{op}: x must be cut as torch.chunk cuts, to parts of shape "
            f"{tuple(size)} on this rank, got {tuple(x.shape)}"
        )
    cut = [dim for dim in range(len(shape)) if size[dim] != shape[dim]]
    if not cut:
        return getattr(ops, op)(*tensors, seed, gate, *numbers)
    share = 2 if core(op).halves else 1  # how many elements of x share a bit
    offset = sum(s * prod(shape[dim + 1 :]) for dim, s in enumerate(start)) // share
    row_length, row_stride = (
        prod([s[cut[-1]], *shape[cut[-1] + 1 :]]) // share for s in (size, shape)
    )
    return getattr(ops, op)(*tensors, seed, gate, *numbers, offset, row_length, row_stride)


_library.impl("draw_shard", draw_shard, "CompositeExplicitAutograd")
_library.impl(
    "draw_shard",
    lambda op, tensors, seed, gate, numbers, *_: getattr(ops, op)(*tensors, seed, gate, *numbers),
    "Meta",
)


def _dispatch(
    rule: Callable, cls: type, op: Callable, types: tuple[type, ...], args: tuple, kwargs: dict
) -> DTensor | tuple[DTensor, ...]:
    return rule(*map(compatibility.ready_to_redistribute, args), **(kwargs or {}))


for op in CORE:
    if {*op.inputs.values(), *op.outputs.values()} & IN_ROW_MAJOR_ORDER.keys():
        rule = partial(_draw if "seed" in op.inputs else _differentiate, op)
        torch.library.register_torch_dispatch(op.overload, DTensor, partial(_dispatch, rule))
