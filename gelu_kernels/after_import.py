"""Runs a function as soon as a module is imported, or at once if it already is.

For registrations with parts of torch that are slow to import and that a program may never need.
"""

import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType


def after_import(name: str, function: Callable[[], None]) -> None:
    if name in sys.modules:
        function()
    else:
        sys.meta_path.insert(0, _AfterImport(name, function))


class _AfterImport(MetaPathFinder):
    """Finds one module as usual, and calls the function after the module has executed."""

    def __init__(self, name: str, function: Callable[[], None]) -> None:
        self.name = name
        self.function = function
        self.is_done = False

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = (
            PathFinder.find_spec(name, path, target)
            if name == self.name and not self.is_done
            else None
        )
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def execute_and_follow(module: ModuleType) -> None:
            execute(module)
            # The finder stays in sys.meta_path: another thread's import may be iterating over it.
            if not self.is_done:
                self.is_done = True
                self.function()

        spec.loader.exec_module = execute_and_follow
        return spec
