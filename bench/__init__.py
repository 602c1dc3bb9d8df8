"""Measurements of the kernels."""

import os

# Set before torch is imported: else its profiler writes to stderr, into the progress bar.
os.environ.setdefault("KINETO_LOG_LEVEL", "99")
