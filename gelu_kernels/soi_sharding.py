"""The SOI map of DTensors: each rank draws the bits that its part has in the whole tensor.

``register_sharding`` cannot say this, as what an operator does depends on the rank: these are rules
that take the place of DTensor's own dispatch.
"""

from collections.abc import Callable, Sequence
from functools import partial
from math import prod

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.distributed_c10d import _resolve_process_group
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.distributed.tensor.placement_types import Placement

ops = torch.ops.gelu_kernels
_library = torch.library.Library("gelu_kernels", "FRAGMENT")  # for as long as the process


class MaskOf(Placement):
    """Of a mask: each rank has the bits of its own part of a tensor with the placement `of`."""

    def __init__(self, of: Placement) -> None:
        super().__init__()
        self.of = of

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MaskOf) and self.of == other.of

    def __hash__(self) -> int:
        return hash((MaskOf, self.of))

    def __repr__(self) -> str:
        return f"MaskOf({self.of!r})"


def soi_forward(
    x: Tensor, bias: Tensor | None, seed: Tensor, gate: str, *index: int
) -> tuple[DTensor, DTensor]:
    return _draw("soi_forward", x, {"bias": bias}, seed, gate, index)


def soi_cdf_forward(
    x: Tensor, loc: Tensor, scale: Tensor, seed: Tensor, gate: str, *index: int
) -> tuple[DTensor, DTensor]:
    return _draw("soi_cdf_forward", x, {"loc": loc, "scale": scale}, seed, gate, index)


def _draw(
    op: str,
    x: Tensor,
    beside: dict[str, Tensor | None],
    seed: Tensor,
    gate: str,
    index: tuple[int, ...],
) -> tuple[DTensor, DTensor]:
    """Whichever seeds the ranks have drawn, the seed of the mesh's first rank counts. As in
    DTensor's own dispatch, a plain tensor that is one number is the same on all ranks."""
    placed = {
        name: t
        for name, t in beside.items()
        if t is not None and (t.ndim > 0 or isinstance(t, DTensor))
    }
    mesh = _mesh_of(op, x=x, **placed)
    if any(index):
        raise ValueError(
            f"gelu_kernels::{op}: offset, row_length and row_stride must be 0 for a DTensor, "
            f"which knows its place, got {', '.join(map(str, index))}"
        )
    x = x.redistribute(placements=_in_rows(x))
    along_last = [Shard(0) if p == Shard(x.ndim - 1) else Replicate() for p in x.placements]
    placements = {0: [Replicate()] * mesh.ndim, 1: along_last}  # of a number and of a vector
    local = beside | {
        name: t.redistribute(placements=placements[t.ndim]).to_local() for name, t in placed.items()
    }
    tensors = [x.to_local(), *local.values()]
    seed = seed.full_tensor() if isinstance(seed, DTensor) else seed
    divided = [i for i in range(mesh.ndim) if mesh.size(i) > 1]
    if mesh.get_coordinate() is None:
        y, mask = getattr(ops, op)(*tensors, seed, gate)
    else:
        y, mask = ops.soi_forward_shard(
            op,
            tensors,
            seed,
            gate,
            x.shape,
            [p.dim if isinstance(p := x.placements[i], Shard) else -1 for i in divided],
            [mesh.get_group(i).group_name for i in divided],
        )
    mask_placements = [MaskOf(p) for p in x.placements]
    return (
        DTensor.from_local(y, mesh, x.placements, shape=x.shape, stride=_dense_stride(x)),
        DTensor.from_local(mask, mesh, mask_placements, shape=((x.numel() + 7) // 8,), stride=(1,)),
    )


def soi_backward(dy: Tensor, mask: Tensor) -> DTensor:
    dy = _placed_as_mask("soi_backward", dy, mask, ("sum", "avg"))
    dx = ops.soi_backward(dy.to_local(), mask.to_local())
    stride = _dense_stride(dy)
    return DTensor.from_local(dx, dy.device_mesh, dy.placements, shape=dy.shape, stride=stride)


def soi_backward_bias(dy: Tensor, mask: Tensor) -> tuple[DTensor, DTensor]:
    # A mean may not stay pending beside the sums that are dbias on another dimension.
    dy = _placed_as_mask("soi_backward_bias", dy, mask, ("sum",))
    dx, dbias = ops.soi_backward_bias(dy.to_local(), mask.to_local())
    mesh, last = dy.device_mesh, Shard(dy.ndim - 1)
    of_dbias = [
        Shard(0) if p == last else Partial() if isinstance(p, Shard) else p for p in dy.placements
    ]
    return (
        DTensor.from_local(dx, mesh, dy.placements, shape=dy.shape, stride=_dense_stride(dy)),
        DTensor.from_local(dbias, mesh, of_dbias, shape=dy.shape[-1:], stride=(1,)),
    )


def _mesh_of(op: str, **arguments: Tensor) -> DeviceMesh:
    """The mesh of all these tensors."""
    mesh = None
    for name, t in arguments.items():
        if not isinstance(t, DTensor):
            raise TypeError(
                f"gelu_kernels::{op}: {name} must be a DTensor as the others are, got {type(t)}"
            )
        mesh = mesh or t.device_mesh
        if t.device_mesh != mesh:
            raise ValueError(
                f"gelu_kernels::{op}: {name} must be on the mesh of the others, {mesh}, "
                f"got {t.device_mesh}"
            )
    return mesh


def _in_rows(x: DTensor) -> list[Placement]:
    """Placements of x under which each rank's part is rows of equal length at equal distances, as
    soi_forward wants it: those it has, but for the last ones that stand in the way."""
    mesh = x.device_mesh
    placements = [p if type(p) is Shard else Replicate() for p in x.placements]
    for i in reversed(range(mesh.ndim)):
        cut = sorted({p.dim for j, p in enumerate(placements) if p.is_shard() and mesh.size(j) > 1})
        if len(cut) < 2 or (len(cut) == 2 and prod(x.shape[: cut[0]]) == 1):
            break
        placements[i] = Replicate()
    return placements


def _placed_as_mask(op: str, dy: Tensor, mask: Tensor, stay_pending: tuple[str, ...]) -> DTensor:
    """dy as the mask's tensor is placed; but where that is replicated, a sum may stay pending."""
    _mesh_of(op, dy=dy, mask=mask)
    placements = []
    for p, of_mask in zip(dy.placements, mask.placements, strict=True):
        of = of_mask.of if isinstance(of_mask, MaskOf) else of_mask
        if not isinstance(of_mask, MaskOf | Replicate):
            raise ValueError(
                f"gelu_kernels::{op}: mask must be a result of soi_forward or replicated, "
                f"got placements {mask.placements}"
            )
        pending = isinstance(p, Partial) and p.reduce_op in stay_pending
        placements.append(p if pending and of.is_replicate() else of)
    return dy.redistribute(placements=placements)


def _dense_stride(x: DTensor) -> tuple[int, ...]:
    """The strides of a result like x, which a gap or an expanded dimension does not pass on to."""
    if x.is_contiguous():
        return x.stride()
    return torch.empty_like(torch.empty_strided(x.shape, x.stride(), device="meta")).stride()


# What depends on the rank is in an operator of its own, which finds it out when it runs. Written
# into a compiled graph, one rank's offset would reach the others through torch.compile's cache.
_library.define(
    "soi_forward_shard(str op, Tensor?[] tensors, Tensor seed, str gate, SymInt[] shape, "
    "int[] dims, str[] groups) -> (Tensor y, Tensor mask)",
    tags=torch.Tag.pt2_compliant_tag,
)


def soi_forward_shard(
    op: str,
    tensors: Sequence[Tensor | None],
    seed: Tensor,
    gate: str,
    shape: Sequence[int],
    dims: Sequence[int],
    groups: Sequence[str],
) -> tuple[Tensor, Tensor]:
    """soi_forward, or `op`, of this rank's part of a tensor of this shape, with the seed of the
    first rank. `tensors` are the operator's first arguments.

    One by one each process group divides the dimension `dims` names, or, where that is -1, none.
    """
    start, size = [0] * len(shape), list(shape)
    seed = seed.clone()
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
    offset = sum(s * prod(shape[dim + 1 :]) for dim, s in enumerate(start))
    cut = [dim for dim in range(len(shape)) if size[dim] != shape[dim]]
    if not cut:
        return getattr(ops, op)(*tensors, seed, gate)
    row_length, row_stride = (prod([s[cut[-1]], *shape[cut[-1] + 1 :]]) for s in (size, shape))
    return getattr(ops, op)(*tensors, seed, gate, offset, row_length, row_stride)


def _soi_forward_shard_meta(
    op: str, tensors: Sequence[Tensor | None], seed: Tensor, gate: str, *part: Sequence
) -> tuple[Tensor, Tensor]:
    return getattr(ops, op)(*tensors, seed, gate)


_library.impl("soi_forward_shard", soi_forward_shard, "CompositeExplicitAutograd")
_library.impl("soi_forward_shard", _soi_forward_shard_meta, "Meta")


def _dispatch(
    rule: Callable, cls: type, op: Callable, types: tuple[type, ...], args: tuple, kwargs: dict
) -> DTensor | tuple[DTensor, DTensor]:
    # Autograd has been here. Under no_grad, torch 2.11's redistribute calls detach_, for which its
    # DTensor has no rule.
    args = [a.detach() if isinstance(a, Tensor) else a for a in args]
    return rule(*args, **(kwargs or {}))


for rule in (soi_forward, soi_cdf_forward, soi_backward, soi_backward_bias):
    op = getattr(ops, rule.__name__).default
    torch.library.register_torch_dispatch(op, DTensor, partial(_dispatch, rule))
