"""What operators refuse: the one table, by what an argument is to the others."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from gelu_kernels.operators.types import Extent
from tests.calls import Call


@dataclass(frozen=True)
class Bad:
    kind: str
    make: Callable[[Tensor], Tensor]  # of a good one
    error: type[Exception]
    message: str  # after the operator's and the argument's name
    # The dispatcher finds no kernel of a core operator for it, and says so.
    is_dispatched: bool = False
    has_meta: bool = True

    def __str__(self) -> str:
        return self.kind

    def about(self, argument: str) -> str:
        return (
            self.message.format(argument) if "{}" in self.message else f"{argument} {self.message}"
        )


def quantised(t: Tensor) -> Tensor:
    return torch.quantize_per_tensor(t, 0.1, 0, torch.qint8)


FLOATING = "must be float64, float32, float16 or bfloat16"
DISPATCHED = {"is_dispatched": True, "has_meta": False}
UNSUITED = [
    Bad("int64", Tensor.long, TypeError, f"{FLOATING}, got (Long|long)"),
    Bad("uint8", Tensor.byte, TypeError, f"{FLOATING}, got (Byte|unsigned char)"),
    Bad("bool", Tensor.bool, TypeError, f"{FLOATING}, got (Bool|bool)"),
    Bad("complex", lambda t: t.to(torch.complex64), TypeError, f"{FLOATING}, got"),
    Bad("float8", lambda t: t.to(torch.float8_e4m3fn), TypeError, f"{FLOATING}, got"),
    Bad("COO", Tensor.to_sparse, TypeError, "must be a strided tensor, got .*Sparse", **DISPATCHED),
    Bad("CSR", Tensor.to_sparse_csr, TypeError, "must be a strided tensor", **DISPATCHED),
    Bad("mkldnn", Tensor.to_mkldnn, TypeError, "must be a strided tensor", **DISPATCHED),
    Bad("sparse integers", lambda t: t.long().to_sparse(), TypeError, FLOATING, **DISPATCHED),
    Bad("quantised", quantised, TypeError, FLOATING, **DISPATCHED),
]


def elsewhere(of: str) -> Bad:
    return Bad(
        "elsewhere", lambda t: t.to("meta"), ValueError, f"must be on the device of {of}, cpu, got "
        "meta", has_meta=False,
    )  # fmt: skip


def of_other_dtypes(of: str) -> list[Bad]:
    message = f"must have the dtype of {of}, (Float|float), got"
    return [
        Bad("float64", Tensor.double, TypeError, message),
        Bad("float16", Tensor.half, TypeError, message),
        Bad("integers", Tensor.int, TypeError, message),
    ]


def unlike(of: str) -> list[Bad]:
    shape = f"must have the shape of {of}, "
    return [
        Bad("transposed", lambda t: t.mT, ValueError, rf"{shape}\[3, 4\], got \[4, 3\]"),
        Bad("a row", lambda t: t[0], ValueError, shape),
        Bad("one of a row", lambda t: t[:1], ValueError, shape),
        Bad("wider", lambda t: torch.cat([t, t], -1), ValueError, shape),
        Bad("0-d", lambda t: t[0, 0], ValueError, shape),
        Bad("sparse", Tensor.to_sparse, TypeError, f"must have the layout of {of}", **DISPATCHED),
        *of_other_dtypes(of),
        elsewhere(of),
    ]


def no_columns(of: str) -> list[Bad]:
    length = "must be as long as the last dimension of x, 4, got length"
    return [
        Bad("too short", lambda t: t[:-1], ValueError, f"{length} 3"),
        Bad("too long", lambda t: torch.cat([t, t]), ValueError, f"{length} 8"),
        Bad("one for all", lambda t: t[:1], ValueError, f"{length} 1"),
        Bad("0-d", lambda t: t[0], ValueError, "must be 1-d, got 0 dimensions"),
        Bad("2-d", lambda t: t[None], ValueError, "must be 1-d, got 2 dimensions"),
        Bad("sparse", Tensor.to_sparse, TypeError, "must be a strided tensor, got", **DISPATCHED),
        *of_other_dtypes(of),
        elsewhere(of),
    ]


def no_rows(of: str) -> list[Bad]:
    shape = r"must have a number for each row of x, \[3\], got"
    return [
        Bad("too short", lambda t: t[:-1], ValueError, rf"{shape} \[2\]"),
        Bad("too long", lambda t: torch.cat([t, t]), ValueError, rf"{shape} \[6\]"),
        Bad("one for all", lambda t: t[:1], ValueError, rf"{shape} \[1\]"),
        Bad("a column", lambda t: t[:, None], ValueError, rf"{shape} \[3, 1\]"),
        Bad("sparse", Tensor.to_sparse, TypeError, "must have the layout of x", **DISPATCHED),
        *of_other_dtypes(of),
        elsewhere(of),
    ]


def no_parameter(of: str) -> list[Bad]:
    """One number, or a vector along the columns."""
    either = [bad for bad in no_columns(of) if bad.kind not in ("0-d", "2-d")]
    dims = Bad("2-d", lambda t: t[None], ValueError, "must be 0-d or 1-d, got 2 dimensions")
    return [*either, dims]


NO_SCALE = [
    Bad("negative", Tensor.neg, ValueError, "must be at least 0, got -", has_meta=False),
    Bad("NaN", lambda t: t * torch.nan, ValueError, "must be at least 0, got nan", has_meta=False),
]


def no_bits(of: str) -> list[Bad]:
    vector = f"must be a vector of a bit for each element of {of}, 2 bytes, got shape"
    return [
        Bad("bool", Tensor.bool, TypeError, "must be uint8, got (Bool|bool)"),
        Bad("more", lambda t: t.repeat(2), ValueError, rf"{vector} \[4\]"),
        Bad("0-d", lambda t: t[0], ValueError, rf"{vector} \[\]"),
        elsewhere(of),
    ]


def no_code(bits: int) -> Callable[[str], list[Bad]]:
    def no_code(of: str) -> list[Bad]:
        n = 12 * bits // 8
        vector = f"must be a vector of {bits} bits for each element of {of}, {n} bytes, got shape"
        return [
            Bad("bool", Tensor.bool, TypeError, "must be uint8, got (Bool|bool)"),
            Bad("more", lambda t: t.repeat(2), ValueError, rf"{vector} \[{2 * n}\]"),
            Bad("0-d", lambda t: t[0], ValueError, rf"{vector} \[\]"),
            elsewhere(of),
        ]

    return no_code


def no_scalar(of: str) -> list[Bad]:
    return [
        Bad("int32", Tensor.int, TypeError, "must be int64, got (Int|int)"),
        Bad("1-d", lambda t: t[None], ValueError, "must be 0-d, got 1 dimensions"),
        elsewhere(of),
    ]


OF_HALVES = [
    Bad(
        "odd",
        lambda t: t[..., 1:],
        ValueError,
        "the last dimension of {} must be even, got length 7",
    ),
]
NEEDS_LAST = [Bad("0-d", lambda t: t.flatten()[0], ValueError, "must have a last dimension for")]

SHAPE = (3, 4)  # of the good ones' result


def bad_inputs(call: Call) -> Iterator[tuple[str, Bad]]:
    """The names of arguments, with what each may not be."""
    kinds = {
        Extent.COLUMNS: no_columns,
        Extent.ROWS: no_rows,
        Extent.BITS: no_bits,
        Extent.BYTES: no_code(8),
        Extent.NIBBLES: no_code(4),
        Extent.SCALAR: no_scalar,
    }
    leading = call.leading
    extents = {*call.tensors.values(), *call.op.outputs.values()}
    needs_last = extents & {Extent.HALVES, Extent.COLUMNS, Extent.ROWS}
    for name, extent in call.tensors.items():
        if name == leading:
            found = UNSUITED
            found = found + (OF_HALVES if extent is Extent.HALVES else [])
            found = found + (NEEDS_LAST if needs_last else [])
        elif name in ("loc", "scale"):
            found = [] if extent is Extent.NUMBER else no_parameter(leading)
            found = found + (NO_SCALE if name == "scale" else [])
        elif extent in kinds:
            found = kinds[extent]("dy" if extent is Extent.BITS else leading)
        else:
            half = call.tensors[leading] is Extent.HALVES
            found = unlike("a half of x" if half else leading)
        for bad in found:
            yield name, bad
