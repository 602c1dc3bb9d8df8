"""Measurements of the kernels."""

import os

# Read when torch is imported: its profiler tells stderr of its start and end, into a progress bar.
os.environ.setdefault("KINETO_LOG_LEVEL", "99")
