"""``python -m tests.planted_faults``: whether `make test` finds small faults, planted one by one.

For a clone, whose sources it changes: it plants a fault, builds if that is C++ or CUDA, runs the
tests listed with the fault, and restores the text, also when interrupted. ``--check`` only tells
whether each text is where the table says. ``--sound`` runs the tests without a fault.
"""

import argparse
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from tests import ROOT

CUDA = {"TORCH_CUDA_ARCH_LIST": "9.0+PTX", "CUDAFLAGS": "-Xcicc=-generate-line-info"}
ENVIRONMENT = {
    **CUDA,
    **os.environ,
    "PYTHONPATH": str(ROOT),  # before an editable install of another tree
    "PYTHONDONTWRITEBYTECODE": "1",
    "COLUMNS": "200",
}
PYTEST = ["-m", "pytest", "-x", "-q", "-n", "0", "-m", "not slow", "--benchmark-disable"]
TIMEOUT = 1200  # seconds


class Fault(NamedTuple):
    area: str
    name: str
    file: str
    old: str  # occurs once
    new: str
    tests: str  # arguments of pytest


# Faults that compile the same files stand together: each build mends one and plants the next.
# fmt: off
FAULTS = [
    Fault("gates", "last digit of a float64 coefficient", "csrc/gates/coefficients/normal.h",
          "0x1.21725231700b8p-2", "0x1.21725231700a8p-2",
          "tests/accuracy/test_accuracy.py -k mpmath"),
    Fault("gates", "tail cut off too early", "csrc/gates/laplace.h",
          "half_limit = 98.25f", "half_limit = 88.25f",
          "tests/accuracy/test_rounding.py -k laplace"),
    Fault("gates", "limit at -inf without the scale", "csrc/gates/cdf.h",
          "own_scale * Real(Gate::left_limit)", "Real(Gate::left_limit)",
          "tests/families/test_cdf.py"),
    Fault("gates", "bfloat16 ties away from even", "csrc/gates/storage.h",
          "0x7fff + (bits(x) >> 16 & 1)", "0x8000",
          "tests/families/test_glu.py"),
    Fault("gates", "float8 ties away from even", "csrc/gates/float8.h",
          "(1 << (dropped - 1)) - 1 + (u >> dropped & 1)", "1 << (dropped - 1)",
          "tests/quantized/test_quantized.py"),
    Fault("gates", "least power of two of a scale that is a float", "csrc/gates/float8.h",
          "least(is_mx ? 0 : 1)", "least(0)",
          "tests/quantized/test_numbers.py -k 'special or steps'"),
    Fault("gates", "first block of a group", "csrc/gates/quantized.h",
          "own.first_column += group.first_block;", "own.first_column += 0;",
          "tests/quantized/test_groups.py"),
    Fault("gates", "tiles of a group", "csrc/gates/quantized.h",
          "own.tiles = group.tiles();", "own.tiles = 1;",
          "tests/quantized/test_groups.py"),
    Fault("CPU loops", "last lane of the bias gradient lost", "csrc/cpu/loops.cpp",
          "m.blocks < kBlockLanes ? m.blocks : kBlockLanes",
          "m.blocks < kBlockLanes ? m.blocks : kBlockLanes - 1",
          "tests/contracts/test_bias_gradient.py"),
    Fault("CPU loops", "first code within a byte", "csrc/cpu/coded_loops.cpp",
          "const int64_t skipped = first % 2;", "const int64_t skipped = 0;",
          "tests/families/test_coded.py"),
    Fault("CPU loops", "mask bit behind the last element", "csrc/cpu/dropout_loops.cpp",
          "for (int64_t p = n; p < padded; ++p)", "for (int64_t p = n + 1; p < padded; ++p)",
          "tests/families/test_dropout.py"),
    Fault("CPU loops", "lanes added in another order", "csrc/cpu/glu_loops.cpp",
          "lanes[2 * i] + lanes[2 * i + 1]", "lanes[i] + lanes[i + count]",
          "tests/families/test_glu.py"),
    Fault("CPU loops", "block of the first tile of rows", "csrc/cpu/quantize_loops.cpp",
          "(first_row + i) / block", "i / block",
          "tests/quantized/test_quantized.py -k passes"),
    Fault("checks", "an end of a group beyond the rows", "csrc/ops/quantized/kernels.h",
          "begin <= ends[k] && ends[k] <= rows", "begin <= ends[k]",
          "tests/quantized/test_errors.py"),
    Fault("eight bits", "room for the blocks of one group", "csrc/ops/quantized/results.cpp",
          "(rows + groups * (block - 1)) / block", "(rows + (block - 1)) / block",
          "tests/quantized/test_groups.py"),
    Fault("eight bits", "packed words of rows that are not a multiple of 4",
          "csrc/ops/quantized/results.cpp",
          "4 * ((rows + 3) / 4 * 4)", "4 * rows",
          "tests/quantized/test_quantized.py -k rows"),
    Fault("eight bits", "a scale for each half of a row", "csrc/ops/quantized/write.h",
          "are_halves ? results[0].rows.amax : zeros(m.rows)", "zeros(m.rows)",
          "tests/quantized/test_quantized.py -k passes"),
    Fault("eight bits", "block of a partial sum", "csrc/ops/quantized/tile_results.h",
          "(tile.row + row) / block_rows", "tile.row / block_rows",
          "tests/quantized/test_quantized.py -k passes"),
    Fault("autograd", "limit of a quantised unit lost", "csrc/ops/quantized/autograd.cpp",
          "if (node) node->numbers = {limit, up_offset};", "",
          "tests/quantized/test_recipes.py -k straight"),
    Fault("checks", "a p of NaN", "csrc/ops/random.cpp",
          "p >= 0 && p <= 1", "!(p < 0 || p > 1)",
          "tests/families/test_dropout.py"),
    Fault("autograd", "a frozen bias left out", "csrc/ops/gate/gradients.h",
          "{gate_backward(dy, x, bias, gate), Tensor()}",
          "{gate_backward(dy, x, std::nullopt, gate), Tensor()}",
          "tests/contracts/test_gradients.py"),
    Fault("autograd", "tangent of the weight lost", "csrc/ops/glu/autograd.cpp",
          "sum_of(sum_of(x_part, up_part), weight_part)", "sum_of(x_part, up_part)",
          "tests/contracts/test_gradients.py"),
    Fault("dispatch", "second result not copied back", "csrc/ops/layout.h",
          "if (k < outputs) t.copy_(copies[k]);", "if (k < 1) t.copy_(copies[k]);",
          "tests/contracts/test_layout.py"),
    Fault("dispatch", "misaligned rows as vectors", "csrc/ops/device/cuda_rows.h",
          "!is_aligned(m.data[k], row_stride)", "!is_aligned(m.data[k], 0)",
          "tests/backends/test_same_layouts.py -k cuda_ptx"),
    Fault("CUDA", "second stage does not wait", "csrc/cuda/add_partial_sums.cu",
          "  wait_for_primary();\n", "",
          "tests/backends/test_column_sums.py"),
    Fault("CUDA", "last block does not acquire", "csrc/cuda/last_block.cuh",
          "atom.acq_rel", "atom.relaxed",
          "tests/backends/test_column_sums.py"),
    Fault("CUDA", "mask of an octet's later vectors", "csrc/cuda/soi/backward.cu",
          "% 4 * kOctet + here.part * V::size", "% 4 * kOctet",
          "tests/backends/test_same_bits.py -k cuda_ptx"),
    Fault("CUDA", "first code within a byte", "csrc/cuda/coded/column_sums.cu",
          "row.is_odd = element % 2;", "row.is_odd = false;",
          "tests/backends/test_same_layouts.py -k cuda_ptx"),
    Fault("CUDA", "octets of a part not the whole's", "csrc/cuda/dropout/forward.cu",
          "are_octets_of_whole(m.index, m.rows * m.columns) && ", "",
          "tests/backends/test_same_layouts.py -k cuda_ptx"),
    Fault("Triton", "stream of another device", "triton_kernels/launch.py",
          "active.get_current_stream(index)", "active.get_current_stream(0)",
          "tests/backends/test_triton_launch.py"),
    Fault("Triton", "offset of a part ignored", "triton_kernels/octets.py",
          "((offset + first) >> 3)", "(first >> 3)",
          "tests/backends/test_same_layouts.py -k triton_ptx"),
    Fault("Triton", "last code of an odd number", "triton_kernels/coded/kernels.py",
          "tl.arange(0, 4)[None, :] * 2 < left", "tl.arange(0, 4)[None, :] * 2 + 1 < left",
          "tests/backends/test_same_layouts.py -k triton_ptx"),
    Fault("Triton", "scale of a small block below 0", "triton_kernels/quantized/float8.py",
          "tl.maximum(exponent - LARGEST, 0 if IS_MX else 1)", "exponent - LARGEST",
          "tests/quantized/test_same_bits.py -k triton"),
    Fault("functional", "seed not passed on", "gelu_kernels/functional/gate.py",
          "input, bias, gate, save, seed)", "input, bias, gate, save, None)",
          "tests/families/test_coded.py"),
    Fault("compile", "sign of a zero", "gelu_kernels/compile/arithmetic.py",
          "constant(-0.0, x)", "constant(0.0, x)",
          "tests/compile/test_fused_accuracy.py"),
    Fault("aten", "lower limit forgotten", "gelu_kernels/aten/core.py",
          "dup.masked_fill(up.abs() > limit, 0)", "dup.masked_fill(up > limit, 0)",
          "tests/compile/test_decompositions.py"),
    Fault("sharding", "offset of two halves", "gelu_kernels/distributed/random.py",
          "for dim, s in enumerate(start)) // share", "for dim, s in enumerate(start))",
          "tests/pytorch/distributed/test_distributed.py"),
    Fault("sharding", "a partial sum called whole", "gelu_kernels/distributed/elementwise.py",
          "cut(extent, dim) or Partial() for extent", "cut(extent, dim) or Replicate() for extent",
          "tests/pytorch/distributed/test_distributed.py"),
    Fault("replace", "weight of another dtype", "gelu_kernels/replace/fused.py",
          "        and (weight.dtype, weight.device) == (x.dtype, x.device)\n", "",
          "tests/replace/test_clamped.py tests/replace/equivalence/test_rows.py"),
    Fault("replace", "an input that the original does not keep", "gelu_kernels/replace/fused.py",
          "        _is_kept(input, weight)\n        and input.dim() > 0", "        input.dim() > 0",
          "tests/replace/equivalence/test_rows.py"),
    Fault("replace", "a result that is read later", "gelu_kernels/replace/parts.py",
          "value.uses == uses and self.flow.is_gone(value)", "value.uses == uses",
          "tests/replace/test_gated.py"),
]  # fmt: on


def text_of(fault: Fault) -> str:
    text = (ROOT / fault.file).read_text()
    if text.count(fault.old) != 1:
        raise ValueError(f"{fault.file} has {fault.old!r} {text.count(fault.old)} times, not once")
    return text


@contextmanager
def planted(fault: Fault) -> Iterator[None]:
    path, text = ROOT / fault.file, text_of(fault)
    try:
        path.write_text(text.replace(fault.old, fault.new))
        yield
    finally:
        path.write_text(text)


def run(*arguments: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT,
    )
    return done.returncode, done.stdout


def build(with_cuda: bool = True) -> None:
    ENVIRONMENT["FORCE_ONLY_CPU"] = "0" if with_cuda else "1"
    code, output = run("setup.py", "--quiet", "build_ext", "--inplace")
    if code:
        raise RuntimeError(f"the build failed:\n{output[-3000:]}")


def first_failure(tests: str) -> str:
    """The name of the first test that fails; empty if all pass."""
    code, output = run(*PYTEST, *shlex.split(tests))
    if code == 0:
        return ""
    if failed := re.search(r"^(?:FAILED|ERROR) (\S+::.+?)(?: - .*)?$", output, re.MULTILINE):
        return failed[1]
    if code < 0:  # killed by a signal; faulthandler prints the stack
        test = re.search(r'File ".*/(tests/\S+)", line \d+ in (test_\w+)', output)
        return f"{test[1]}::{test[2]}" if test else signal.Signals(-code).name
    raise RuntimeError(f"pytest {tests}: exit status {code}\n{output[-3000:]}")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default="", help="a pattern for 'area: name'")
    parser.add_argument("--check", action="store_true", help="that each text occurs once")
    parser.add_argument("--sound", action="store_true", help="run the tests without a fault")
    options = parser.parse_args(arguments)
    chosen = [f for f in FAULTS if re.search(options.only, f"{f.area}: {f.name}")]
    for fault in chosen:
        text_of(fault)
    if options.check:
        return 0
    if options.sound:
        failures = [first_failure(tests) for tests in dict.fromkeys(f.tests for f in chosen)]
        print("\n".join(filter(None, failures)) or "all pass")
        return int(any(failures))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # which puts the text back
    rows, missed, is_built = [], 0, False
    try:
        for fault in chosen:
            is_compiled = fault.file.startswith("csrc/")
            started = built = time.monotonic()
            try:
                with planted(fault):
                    if is_compiled or not is_built:
                        is_built = False
                        # CUDA's kernels are most of a build, and most tests run the CPU's alone.
                        build(with_cuda=not is_compiled or "cuda" in fault.file)
                        is_built = not is_compiled
                    built = time.monotonic()
                    found = first_failure(fault.tests) or "**nothing**"
            except (RuntimeError, subprocess.TimeoutExpired) as error:
                print(error, flush=True)
                found = "**an error**"
            missed += found.startswith("**")
            rows.append(f"| {fault.area} | {fault.name} | {found} |")
            seconds = f"{built - started:.0f} + {time.monotonic() - built:.0f} s"
            print(f"{fault.area}: {fault.name}: {found} ({seconds})", flush=True)
    finally:
        if not is_built:
            build()
    print("\n| where | fault | found by |\n|---|---|---|", *rows, sep="\n")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
