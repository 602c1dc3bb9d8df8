"""The tests: a folder for each kind of contract, and here what several folders share."""

from pathlib import Path

ROOT = Path(__file__).parents[1]
