"""Small kernels in PTX, for the tests of the machine that executes it (``ptx_on_cpu/``)."""

import ctypes
from collections.abc import Sequence

import torch
from torch import Tensor

from tests import ptx_on_cpu

DTYPES = {
    "f64": torch.float64, "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16,
    "b64": torch.int64, "b32": torch.int32, "b16": torch.int16, "b8": torch.uint8,
    "pred": torch.uint8,
}  # fmt: skip
SIZES = {name: dtype.itemsize for name, dtype in DTYPES.items()}


def module(
    body: str, parameters: int, registers: str = "", shared: int = 0, most: int = 1024
) -> str:
    """A kernel `k` whose parameters are pointers p0, p1, ..., loaded into %rd0, %rd1, ..."""
    declared = ", ".join(f".param .u64 p{i}" for i in range(parameters))
    loads = "\n".join(f"ld.param.u64 %rd{i}, [p{i}];" for i in range(parameters))
    return f"""
.shared .align 16 .b8 memory[{shared or 16}];
.visible .entry k({declared})
.maxntid {most}, 1, 1
{{
.reg .b64 %rd<20>;
.reg .b32 %r<20>;
.reg .b16 %rs<20>;
.reg .f32 %f<20>;
.reg .pred %p<20>;
{registers}
{loads}
mov.u32 %r0, %tid.x;
{body}
ret;
}}
"""


def launch(text: str, tensors: Sequence[Tensor], threads: int = 32, blocks: int = 1) -> None:
    (kernel,) = ptx_on_cpu.load(text).values()
    values = [ctypes.c_uint64(t.data_ptr()) for t in tensors]
    pointers = (ctypes.c_void_p * len(values))(*[ctypes.addressof(v) for v in values])
    kernel.launch((blocks, 1, 1), (threads, 1, 1), 0, ctypes.addressof(pointers))


def evaluate(instruction: str, result: str, *operands: tuple[str, Tensor]) -> Tensor:
    """The instruction for each element: `d` stands for its result, a, b, c for the operands, whose
    types are in bits."""
    n = operands[0][1].numel()
    lines, tensors = [], []

    def address(i: int, size: int) -> None:
        lines.append(f"mad.wide.u32 %rd19, %r0, {size}, %rd{i};")

    registers = [f".reg .{kind} {name};" for name, (kind, _) in zip("abc", operands, strict=False)]
    registers.append(f".reg .{result} d;")
    for i, (name, (kind, t)) in enumerate(zip("abc", operands, strict=False)):
        address(i, SIZES[kind])
        bits = "b8" if kind == "pred" else f"b{8 * SIZES[kind]}"
        if kind == "pred":
            lines += [f"ld.global.{bits} %rs1, [%rd19];", f"setp.ne.b16 {name}, %rs1, 0;"]
        else:
            lines.append(f"ld.global.{bits} {name}, [%rd19];")
        tensors.append(t.contiguous())
    lines.append(instruction)
    out = torch.zeros(n, dtype=DTYPES[result])
    address(len(operands), SIZES[result])
    if result == "pred":
        lines += ["selp.b16 %rs1, 1, 0, d;", "st.global.b8 [%rd19], %rs1;"]
    else:
        lines.append(f"st.global.b{8 * SIZES[result]} [%rd19], d;")
    text = module("\n".join(lines), len(operands) + 1, "\n".join(registers))
    for begin in range(0, n, 1024):
        part = [t[begin : begin + 1024].clone() for t in tensors]
        results = out[begin : begin + 1024].clone()
        launch(text, [*part, results], threads=results.numel())
        out[begin : begin + 1024] = results
    return out
