"""The Triton kernels as the operators' kernels of a device."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from torch.library import _scoped_library

from gelu_kernels import backend


@contextmanager
def registered(key: str) -> Iterator[None]:
    """The operators take tensors of this dispatch key to the Triton kernels."""
    with _scoped_library("gelu_kernels", "IMPL") as library:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a kernel that takes another's place
            for name, kernel in backend.TRITON.items():
                library.impl(name, kernel, key)
        yield
