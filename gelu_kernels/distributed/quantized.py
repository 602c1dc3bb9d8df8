"""How the quantised operators run on DTensors: each rank on its own rows, if these are whole blocks
and the rank's result is its part of the whole result."""

from functools import partial

from torch import Tensor
from torch.distributed.tensor import Partial, Replicate, Shard
from torch.distributed.tensor.experimental import register_sharding
from torch.distributed.tensor.placement_types import Placement

from gelu_kernels.distributed.elementwise import Sharding
from gelu_kernels.functional.scale_layout import BLOCKS
from gelu_kernels.operators.table import QUANTIZED
from gelu_kernels.operators.types import Operator

TILE = 128  # rows of swizzled scales


def _by_rows(name: str, arguments: dict[str, Tensor | str | None]) -> Placement:
    """The placement of a result when the first dimension of x is cut."""
    along, scaling = arguments["along"], arguments.get("scaling")
    is_column, is_scale = "column" in name, name.endswith("scales")
    if name == "dbias":
        return Partial()
    if name != "dweight" and along == ("row" if is_column else "column"):
        return Replicate()  # it is empty
    if is_scale and scaling == "TensorWise":
        return Partial("max")
    return Shard(1 if is_column else 0)


def _shardings(op: Operator, *args: Tensor | str | None) -> list[Sharding]:
    """The ways to shard over one dimension of a mesh."""
    arguments = op.named(args)
    x = arguments["x"]
    tensors = {name for name, arg in arguments.items() if hasattr(arg, "placements")}
    results = list(op.outputs)

    def placed(others: Placement) -> list[Placement | None]:
        """What has no rows is replicated."""
        without_rows = ("bias", "scale", "offsets")
        return [
            None if name not in tensors else Replicate() if name in without_rows else others
            for name in arguments
        ]

    shardings = [([Replicate() for _ in results], placed(Replicate()))]
    rows_of_rank = x.shape[:-1].numel() / x.mesh.size() if x.ndim > 1 else 0
    is_whole = x.ndim > 1 and x.shape[0] % x.mesh.size() == 0
    # A rank has its part of no group, and of no column with one scale.
    is_local = arguments["offsets"] is None and (unit := _unit(arguments)) is not None
    if is_whole and is_local and rows_of_rank % unit == 0:
        shardings.append(([_by_rows(name, arguments) for name in results], placed(Shard(0))))
    return shardings


def _unit(arguments: dict[str, object]) -> int | None:
    """The rows of which a rank needs a multiple; None if its result is no part of the whole."""
    has_columns, is_swizzled = arguments["along"] != "row", arguments["swizzle"] != "NO_SWIZZLE"
    if not has_columns:
        return TILE if is_swizzled else 1
    # The swizzled scales of a rank's columns are not a slice of the whole, and a word has four
    # packed ones.
    if is_swizzled or arguments["scaling"] == "RowWise":
        return None
    return BLOCKS[arguments["scaling"]] * (4 if arguments["packed"] else 1)


for op in QUANTIZED:
    register_sharding(op.overload)(partial(_shardings, op))
