"""The syntax tree of a function, and the function compiled from a changed tree."""

import ast
import functools
import inspect
import linecache
import threading
import warnings
from dataclasses import dataclass
from types import CellType, CodeType, FunctionType

FUSED = "_gelu_kernels_fused"  # a keyword-only argument of the functions made here

_parsing = threading.Lock()  # catch_warnings changes the filters of every thread


@dataclass(frozen=True)
class Definition:
    """``node`` defines the function; ``module`` holds what its code depends on in the file."""

    function: FunctionType
    node: ast.FunctionDef
    module: ast.Module


class Sources:
    """Files, each parsed once."""

    def __init__(self) -> None:
        self._imports: dict[str, list[ast.stmt]] = {}
        self._found: dict[tuple[str, int], tuple[ast.stmt, ast.FunctionDef]] = {}

    def definition(self, function: FunctionType) -> Definition | None:
        """The definition of a function, or of the one inside its decorators.

        None unless the source compiles to exactly the code that runs: a class made by ``exec`` has
        no source, and the file may have been edited since its import.
        """
        inner = inspect.unwrap(function)
        if not isinstance(inner, FunctionType) or not is_in_closures(function):
            return None
        wrappers = []
        while function is not inner:
            wrappers.append(function)
            function = function.__wrapped__
        return self._read(inner) if all(map(self._only_calls, wrappers)) else None

    def _only_calls(self, wrapper: FunctionType) -> bool:
        """Whether a wrapper only calls the function that it wraps, passes it on, or reads its
        attributes."""
        found = self._read(wrapper)
        body = ast.Module(found.node.body if found else [], [])
        nodes = list(ast.walk(body))
        cells = zip(wrapper.__code__.co_freevars, wrapper.__closure__ or (), strict=True)
        names = {name for name, cell in cells if cell_contents(cell) is wrapper.__wrapped__}
        calls = [node for node in nodes if isinstance(node, ast.Call)]
        known = [part for call in calls for part in (call.func, *call.args)]
        known += [node.value for node in nodes if isinstance(node, ast.Attribute)]
        uses = [node for node in nodes if isinstance(node, ast.Name) and node.id in names]
        return found is not None and all(use in known for use in uses)

    def _read(self, function: FunctionType) -> Definition | None:
        code = function.__code__
        if code.co_filename not in self._imports:
            self._parse(code.co_filename, function.__globals__)
        statement, node = self._found.get((code.co_filename, code.co_firstlineno), (None, None))
        if node is None:
            return None
        # With the imports, as Python compiles calls of an imported module's functions differently.
        module = ast.Module([*self._imports[code.co_filename], statement], [])
        return Definition(function, node, module) if _same(_find(module, code), code) else None

    def _parse(self, file: str, names: dict[str, object]) -> None:
        linecache.checkcache(file)
        try:
            with _parsing, warnings.catch_warnings():
                warnings.simplefilter("ignore")  # they were issued when the file was imported
                body = ast.parse("".join(linecache.getlines(file, names))).body
        except SyntaxError:
            body = []
        self._imports[file] = list(filter(_imports, body))
        for statement in body:
            for node in ast.walk(statement):
                if isinstance(node, ast.FunctionDef):
                    line = min(part.lineno for part in [node, *node.decorator_list])
                    self._found[file, line] = statement, node


def rebuild(
    function: FunctionType, definition: Definition, table: dict[int, ast.AST], fused: object
) -> FunctionType:
    """The function with the nodes in the table, by ``id``, replaced. ``FUSED`` in the new nodes
    refers to ``fused``. The function's decorators wrap the new one."""
    inner, arguments = definition.function, definition.node.args
    more = ast.arguments(**dict(ast.iter_fields(arguments)))
    more.kwonlyargs = [*arguments.kwonlyargs, ast.arg(FUSED)]
    more.kw_defaults = [*arguments.kw_defaults, None]
    module = _replaced(definition.module, {**table, id(arguments): more})
    code = _find(ast.fix_missing_locations(module), inner.__code__)
    new = _with_code(inner, code, inner.__closure__)
    new.__kwdefaults__ = {**(inner.__kwdefaults__ or {}), FUSED: fused}
    return _wrapped(function, new)


def _wrapped(function: FunctionType, new: FunctionType) -> FunctionType:
    """``new`` inside the wrappers of a function."""
    if not hasattr(function, "__wrapped__"):
        return new
    new = _wrapped(function.__wrapped__, new)
    cells = function.__closure__ or ()
    cells = tuple(
        CellType(new) if cell_contents(cell) is function.__wrapped__ else cell for cell in cells
    )
    wrapper = _with_code(function, function.__code__, cells)
    wrapper.__kwdefaults__, wrapper.__wrapped__ = function.__kwdefaults__, new
    return wrapper


def is_in_closures(function: FunctionType) -> bool:
    """Whether each wrapper has the function that it wraps in its closure."""
    wrapped = getattr(function, "__wrapped__", None)
    if wrapped is None:
        return True
    contents = map(cell_contents, getattr(function, "__closure__", None) or ())
    return any(value is wrapped for value in contents) and is_in_closures(wrapped)


def _with_code(
    function: FunctionType, code: CodeType, closure: tuple[CellType, ...] | None
) -> FunctionType:
    names, defaults = function.__globals__, function.__defaults__
    new = FunctionType(code, names, function.__name__, defaults, closure)
    return functools.update_wrapper(new, function, _KEPT)


# Since 3.14 annotations are evaluated lazily.
_ANNOTATIONS = "__annotate__" if hasattr(FunctionType, "__annotate__") else "__annotations__"
_KEPT = ("__module__", "__qualname__", "__doc__", _ANNOTATIONS)


def _imports(statement: ast.stmt) -> bool:
    imports = ast.Import | ast.ImportFrom
    return isinstance(statement, imports) or (
        isinstance(statement, ast.If | ast.Try | ast.With)
        and any(isinstance(node, imports) for node in ast.walk(statement))
    )


def _find(module: ast.Module, code: CodeType) -> CodeType | None:
    """The code object in a module with the same name and first line."""
    codes = [compile(module, code.co_filename, "exec", dont_inherit=True)]
    for found in codes:
        if (found.co_name, found.co_firstlineno) == (code.co_name, code.co_firstlineno):
            return found
        codes += [constant for constant in found.co_consts if isinstance(constant, CodeType)]
    return None


_PARTS = (
    "co_argcount", "co_posonlyargcount", "co_kwonlyargcount", "co_flags", "co_code", "co_consts",
    "co_names", "co_varnames", "co_freevars", "co_cellvars",
    *(["co_exceptiontable"] if hasattr(CodeType, "co_exceptiontable") else []),  # since 3.11
)  # fmt: skip


def _same(a: object, b: object) -> bool:
    if isinstance(a, CodeType) and isinstance(b, CodeType):
        return all(_same(getattr(a, part), getattr(b, part)) for part in _PARTS)
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(_same, a, b))
    if isinstance(a, float | complex):
        return repr(a) == repr(b)  # 0.0 and -0.0 are equal
    return type(a) is type(b) and a == b


def _replaced(node: object, table: dict[int, ast.AST]) -> object:
    """A copy of a tree with some nodes replaced."""
    if isinstance(node, list):
        return [_replaced(item, table) for item in node]
    if not isinstance(node, ast.AST):
        return node
    while id(node) in table:
        node = ast.copy_location(table[id(node)], node)
    fields = {name: _replaced(value, table) for name, value in ast.iter_fields(node)}
    return ast.copy_location(type(node)(**fields), node)


def cell_contents(cell: CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:  # it is empty
        return None
