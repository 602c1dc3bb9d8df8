"""Opt-in fusion of the gates by Inductor, ``torch.compile``'s code generator.

By default a compiled graph calls the operators of this package. Between elementwise operations, one
fused loop that includes the gate can be faster: docs/guide/compile.md has measurements.
"""

import hashlib
from functools import cache
from pathlib import Path

import torch


def enable_fusion() -> None:
    r"""Lets Inductor fuse the gates, forward and backward, with the operations around them.

    It affects functions that ``torch.compile`` or AOTInductor compiles from now on, until
    :func:`disable_fusion`. An already compiled function does not change until
    ``torch.compiler.reset()``. Shapes, strides, dtypes and errors do not change. Other operators
    are not fused, such as gated linear units, the SOI map, and the backward pass that sums the
    gradient of a bias.

    Accuracy: float32 and float64 within 4 units in the last place, on a CPU with the same bits as
    without fusion. float16 and bfloat16 are computed in float32 and rounded once, where they are
    written to memory; values passed from one fused operation to the next are not rounded.

    Raises:
        ImportError: this torch has no Inductor.

    Source: the formulas of ``csrc/gates/``.

    >>> from gelu_kernels import nn
    >>> layers = torch.nn.Sequential(torch.nn.Hardtanh(-10, 10), nn.GELU(), torch.nn.Softsign())
    >>> enable_fusion()
    >>> torch.compile(layers)(torch.tensor([-11.0, 0.0, 1.0]))  # one loop over memory
    tensor([-7.6199e-23,  0.0000e+00,  4.5692e-01])
    >>> disable_fusion()
    """
    from gelu_kernels.compile import lowerings  # imports Inductor, which takes a second

    lowerings.register()
    _mark_cached_code(fused=True)


def disable_fusion() -> None:
    """Undoes :func:`enable_fusion` for functions compiled from now on.

    >>> enable_fusion()
    >>> disable_fusion()
    >>> "gelu_kernels" in torch.compiler.config.cache_key_tag
    False
    """
    if _fingerprint() in torch.compiler.config.cache_key_tag:
        from gelu_kernels.compile import lowerings

        lowerings.unregister()
        _mark_cached_code(fused=False)


def _mark_cached_code(fused: bool) -> None:
    """Inductor's caches identify a graph by its operators, not by their lowerings, and would
    return stale code; this tag is part of their keys."""
    config = torch.compiler.config
    others = config.cache_key_tag.replace(_fingerprint(), "")
    config.cache_key_tag = others + _fingerprint() * fused


@cache
def _fingerprint() -> str:
    """A hash of the formulas, so that code generated from other formulas is not reused."""
    package = Path(__file__).parent
    files = sorted([*package.glob("*.py"), *(package.parent / "formulas").rglob("*.py")])
    code = hashlib.sha256(b"".join(file.read_bytes() for file in files))
    return f" gelu_kernels.compile:{code.hexdigest()}"
