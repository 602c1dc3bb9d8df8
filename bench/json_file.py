"""JSON files that are whole at any moment."""

import json
import os
from pathlib import Path


def save(contents: object, path: Path) -> None:
    """By way of a file with another name, so that whoever is killed leaves no half of one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f"{path.name}.new")
    new.write_text(json.dumps(contents, indent=1) + "\n")
    os.replace(new, path)


def load(path: Path) -> object:
    return json.loads(path.read_text())
