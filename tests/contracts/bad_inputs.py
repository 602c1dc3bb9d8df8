"""The inputs that operators refuse: a table for each kind of argument."""

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
    Bad("int64", Tensor.long, TypeError, f"{FLOATING}, got torch.int64"),
    Bad("uint8", Tensor.byte, TypeError, f"{FLOATING}, got torch.uint8"),
    Bad("bool", Tensor.bool, TypeError, f"{FLOATING}, got torch.bool"),
    Bad("complex", lambda t: t.to(torch.complex64), TypeError, f"{FLOATING}, got torch.complex64"),
    Bad("float8", lambda t: t.to(torch.float8_e4m3fn), TypeError, f"{FLOATING}, got torch.float8"),
    Bad("COO", Tensor.to_sparse, TypeError, "must be a strided tensor, got .*Sparse", **DISPATCHED),
    Bad("CSR", Tensor.to_sparse_csr, TypeError, "must be a strided tensor", **DISPATCHED),
    Bad("mkldnn", Tensor.to_mkldnn, TypeError, "must be a strided tensor", **DISPATCHED),
    Bad("sparse integers", lambda t: t.long().to_sparse(), TypeError, FLOATING, **DISPATCHED),
    Bad("quantised", quantised, TypeError, FLOATING, **DISPATCHED),
]


def elsewhere(of: str, place: str = "on the device of") -> Bad:
    message = f"must be {place} {of}, cpu, got meta"
    return Bad("elsewhere", lambda t: t.to("meta"), ValueError, message, has_meta=False)


def unlike(of: str, layout: str) -> list[Bad]:
    """Of another layout, dtype or device."""
    message = f"must have the dtype of {of}, torch.float32, got torch."
    return [
        Bad("sparse", Tensor.to_sparse, TypeError, f"must {layout}", **DISPATCHED),
        Bad("float64", Tensor.double, TypeError, message),
        Bad("float16", Tensor.half, TypeError, message),
        Bad("integers", Tensor.int, TypeError, message),
        elsewhere(of),
    ]


def no_elements(of: str) -> list[Bad]:
    shape = f"must have the shape of {of}, "
    return [
        Bad("transposed", lambda t: t.mT, ValueError, rf"{shape}\[3, 4\], got \[4, 3\]"),
        Bad("a row", lambda t: t[0], ValueError, shape),
        Bad("one of a row", lambda t: t[:1], ValueError, shape),
        Bad("wider", lambda t: torch.cat([t, t], -1), ValueError, shape),
        Bad("0-d", lambda t: t[0, 0], ValueError, shape),
        *unlike(of, f"have the layout of {of}"),
    ]


def no_columns(of: str) -> list[Bad]:
    length = "must be as long as the last dimension of x, 4, got length"
    return [
        Bad("too short", lambda t: t[:-1], ValueError, f"{length} 3"),
        Bad("too long", lambda t: torch.cat([t, t]), ValueError, f"{length} 8"),
        Bad("one for all", lambda t: t[:1], ValueError, f"{length} 1"),
        Bad("0-d", lambda t: t[0], ValueError, "must be 1-d, got 0 dimensions"),
        Bad("2-d", lambda t: t[None], ValueError, "must be 1-d, got 2 dimensions"),
        *unlike(of, "be a strided tensor, got"),
    ]


def no_rows(of: str) -> list[Bad]:
    shape = r"must have a number for each row of x, \[3\], got"
    return [
        Bad("too short", lambda t: t[:-1], ValueError, rf"{shape} \[2\]"),
        Bad("too long", lambda t: torch.cat([t, t]), ValueError, rf"{shape} \[6\]"),
        Bad("one for all", lambda t: t[:1], ValueError, rf"{shape} \[1\]"),
        Bad("a column", lambda t: t[:, None], ValueError, rf"{shape} \[3, 1\]"),
        *unlike(of, "have the layout of x"),
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


def no_vector_of(each: str, size: int) -> Callable[[str], list[Bad]]:
    """Bad vectors of bits or codes, where a good one has `size` bytes."""

    def no_vector(of: str) -> list[Bad]:
        vector = f"must be a vector of {each} for each element of {of}, {size} bytes, got shape"
        return [
            Bad("bool", Tensor.bool, TypeError, "must be uint8, got torch.bool"),
            Bad("more", lambda t: t.repeat(2), ValueError, rf"{vector} \[{2 * size}\]"),
            Bad("0-d", lambda t: t[0], ValueError, rf"{vector} \[\]"),
            elsewhere(of),
        ]

    return no_vector


def no_scalar(of: str) -> list[Bad]:
    return [
        Bad("int32", Tensor.int, TypeError, "must be int64, got torch.int32"),
        Bad("1-d", lambda t: t[None], ValueError, "must be 0-d, got 1 dimensions"),
        elsewhere(of, "on the CPU or on the device of"),
    ]


EVEN = "the last dimension of {} must be even, got length 7"
OF_HALVES = [Bad("odd", lambda t: t[..., 1:], ValueError, EVEN)]
NEEDS_LAST = [Bad("0-d", lambda t: t.flatten()[0], ValueError, "must have a last dimension for")]

SHAPE = (3, 4)  # of the good ones' result


KINDS = {
    Extent.COLUMNS: no_columns,
    Extent.ROWS: no_rows,
    Extent.BITS: no_vector_of("a bit", 2),
    Extent.BYTES: no_vector_of("8 bits", 12),
    Extent.NIBBLES: no_vector_of("4 bits", 6),
    Extent.SCALAR: no_scalar,
}


def bad_inputs(call: Call) -> Iterator[tuple[Call, str, Bad]]:
    """What each argument of the call may not be."""
    for name, extent in call.tensors.items():
        for bad in unsuited(call, name, extent):
            yield call, name, bad


def unsuited(call: Call, name: str, extent: Extent) -> list[Bad]:
    leading = call.leading
    is_half = extent is Extent.HALVES
    if name == leading:
        needs_last = [] if call.takes_scalars else NEEDS_LAST
        return UNSUITED + (OF_HALVES if is_half else []) + needs_last
    if name in ("loc", "scale"):
        of_dtype = [] if extent is Extent.NUMBER else no_parameter(leading)
        return of_dtype + (NO_SCALE if name == "scale" else [])
    if extent in KINDS:
        return KINDS[extent]("dy" if extent is Extent.BITS else leading)
    return no_elements("a half of x" if call.tensors[leading] is Extent.HALVES else leading)
