"""The data flow of a method: its expressions in the order in which they are evaluated."""

import ast
from collections import Counter
from dataclasses import dataclass, field
from types import FunctionType, ModuleType

_OPERATIONS = {ast.Mult: "mul", ast.Add: "add"}
_PARTS = (ast.Compare, ast.BoolOp, ast.IfExp, ast.Dict, ast.JoinedStr, ast.Starred)
# Most of these may read local variables by name; the last two may overwrite a tensor without
# autograd noticing.
_UNSAFE = {
    "locals", "vars", "eval", "exec", "dir", "_getframe", "currentframe", "stack", "data", "numpy",
}  # fmt: skip
# The method may continue after an exception in one of these.
_CATCHES = (ast.Try, ast.With, ast.AsyncWith, *filter(None, [getattr(ast, "TryStar", None)]))


@dataclass(eq=False)
class Value:
    """The value of an expression.

    ``operation`` is one of: ``child``, a call of ``self.target``; ``function``, a call of the
    object ``target``; ``method``, a call of a method of the first input; ``stored``, the attribute
    ``self.target``; ``constant``; ``global``; ``receiver``, which is ``self``; ``variable``, a
    variable with an unknown value; ``mul``, ``add`` and ``neg``; ``read``, anything else that
    writes nothing; ``unknown``, which may do anything.
    """

    node: ast.expr | None
    operation: str
    target: object = None
    inputs: tuple["Value", ...] = ()
    keywords: dict[str, "Value"] = field(default_factory=dict)
    position: int = 0
    uses: int = 0
    names: set[str] = field(default_factory=set)  # variables that may still hold it at the end


class DataFlow:
    """The values of one method.

    Branches, loops and contexts are opaque: each block in them is analysed on its own, and a
    variable is followed only within its block.
    """

    def __init__(self, function: FunctionType, definition: ast.FunctionDef) -> None:
        self.values: list[Value] = []
        self._function = function
        arguments = [*definition.args.posonlyargs, *definition.args.args]
        self.receiver = arguments[0].arg if arguments else ""
        self._held: dict[str, Value] = {}  # by variables
        self._given: dict[str, Value] = {}  # by variables that are bound outside the block
        self._straight: set[str] = set()  # variables bound since the last branch
        self._catches = False
        self._reads: Counter[str] = Counter()  # reads of variables that were followed
        nodes = list(ast.walk(definition))
        attributes = [node for node in nodes if isinstance(node, ast.Attribute)]
        bound = {*_names(nodes, ast.Store, ast.Del)}
        self._all_reads = Counter(_names(nodes, ast.Load))
        self._all_reads.update(_names([n.target for n in nodes if isinstance(n, ast.AugAssign)]))
        code = function.__code__
        self._shared = {*code.co_cellvars, *code.co_freevars}  # with other functions
        self._local = bound.union(code.co_varnames, self._shared)
        rebinds = any(isinstance(node, ast.Global | ast.Nonlocal) for node in nodes)
        is_unsafe = _UNSAFE & {*_names(nodes), *(node.attr for node in attributes)}
        if not rebinds and not is_unsafe and self.receiver not in bound:
            for argument in [*arguments[1:], *definition.args.kwonlyargs]:
                self._bind(argument.arg, self._value(None, "variable"))
            self._block(definition.body)

    def is_gone(self, value: Value) -> bool:
        """Whether nothing reads it except the uses that were counted."""
        return all(self._reads[name] == self._all_reads[name] for name in value.names)

    def _block(self, statements: list[ast.stmt]) -> None:
        for statement in statements:
            if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
                self._assign(statement.targets[0], statement.value)
            elif isinstance(statement, ast.AnnAssign) and statement.value:
                self._assign(statement.target, statement.value)
            elif isinstance(statement, ast.Return | ast.Expr) and statement.value:
                self._evaluate(statement.value).uses += 1
            else:
                blocks = _blocks(statement)
                self._given = {}
                if blocks:
                    self._straight.clear()
                self._unknown(statement)
                for block in blocks:
                    self._inner(block, isinstance(statement, _CATCHES))

    def _inner(self, block: list[ast.stmt], catches: bool) -> None:
        outer = self._held, self._straight, self._catches
        self._held, self._straight, self._catches = {}, set(), self._catches or catches
        self._block(block)
        self._value(None, "unknown")
        self._held, self._straight, self._catches = outer
        self._given = {}

    def _assign(self, target: ast.expr, node: ast.expr) -> None:
        elements = target.elts if isinstance(target, ast.Tuple) else [target]
        names = [name.id for name in elements if isinstance(name, ast.Name)]
        if len(names) < len(elements):
            self._evaluate(node).uses += 1
            self._unknown(target)
        elif isinstance(target, ast.Name):
            self._bind(target.id, self._evaluate(node))
        elif isinstance(node, ast.Tuple) and len(node.elts) == len(names):
            for name, value in zip(names, [*map(self._evaluate, node.elts)], strict=True):
                self._bind(name, value)
        else:
            whole = self._evaluate(node)
            for name in names:
                self._bind(name, self._value(None, "read", name, (whole,)))

    def _bind(self, name: str, value: Value) -> None:
        self._end(name)
        if name in self._shared:
            value.uses += 1
            return
        self._held[name] = value
        self._straight.add(name)
        value.names.add(name)

    def _end(self, name: str) -> None:
        """From here on the variable holds another value, or none."""
        self._given.pop(name, None)
        value = self._held.pop(name, None)
        if value and name in self._straight and not self._catches:
            value.names.discard(name)

    def _value(
        self,
        node: ast.expr | None,
        operation: str,
        target: object = None,
        inputs: tuple[Value, ...] = (),
        keywords: dict[str, Value] | None = None,
    ) -> Value:
        value = Value(node, operation, target, inputs, keywords or {}, len(self.values))
        for used in (*inputs, *value.keywords.values()):
            used.uses += 1
        self.values.append(value)
        return value

    def _unknown(self, node: ast.AST) -> Value:
        """A value for code that may keep or overwrite whatever it reads, at any time."""
        nodes = list(ast.walk(node))
        for name in {*_names(nodes)} & self._held.keys():
            self._held[name].uses += 1
        for name in _names(nodes, ast.Store, ast.Del):
            self._end(name)
        return self._value(node if isinstance(node, ast.expr) else None, "unknown")

    def _evaluate(self, node: ast.expr) -> Value:
        if isinstance(node, ast.Name):
            return self._variable(node)
        if isinstance(node, ast.Constant):
            return self._value(node, "constant", node.value)
        if isinstance(node, ast.Attribute):
            return self._attribute(node)
        if isinstance(node, ast.Call):
            return self._call(node)
        if isinstance(node, ast.BinOp):
            operation = _OPERATIONS.get(type(node.op), "read")
            return self._value(node, operation, None, self._all([node.left, node.right]))
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return self._value(node, "neg", None, self._all([node.operand]))
        if isinstance(node, ast.Subscript | ast.Slice | ast.Tuple | ast.List):
            return self._value(node, "read", None, self._all(_expressions(node)))
        if isinstance(node, _PARTS):
            return self._value(node, "unknown", None, self._all(_expressions(node), apart=True))
        return self._unknown(node)

    def _all(self, nodes: list[ast.expr], apart: bool = False) -> tuple[Value, ...]:
        values = []
        for node in nodes:
            values.append(self._evaluate(node))
            if apart:
                self._value(None, "unknown")
        return tuple(values)

    def _variable(self, node: ast.Name) -> Value:
        if node.id in self._held:
            self._reads[node.id] += 1
            return self._held[node.id]
        if node.id == self.receiver:
            return self._value(node, "receiver")
        if node.id in self._local:
            value = self._given.get(node.id) or self._value(node, "variable")
            if node.id not in self._shared:
                self._given[node.id] = value
            return value
        return self._value(node, "global", self._function.__globals__.get(node.id))

    def _attribute(self, node: ast.Attribute) -> Value:
        base = self._evaluate(node.value)
        if base.operation == "receiver" and isinstance(node.value, ast.Name):
            stored = node.value.id == self.receiver
            return self._value(node, "stored" if stored else "unknown", node.attr)
        if base.operation == "stored":
            return self._value(node, "stored", f"{base.target}.{node.attr}")
        if isinstance(base.target, ModuleType) and base.node is node.value:
            return self._value(node, "global", getattr(base.target, node.attr, None))
        return self._value(node, "read", node.attr, (base,))

    def _call(self, node: ast.Call) -> Value:
        operation, target, inputs = "unknown", None, ()
        if isinstance(node.func, ast.Attribute):
            base = self._evaluate(node.func.value)
            if isinstance(base.target, ModuleType) and base.node is node.func.value:
                operation, target = "function", getattr(base.target, node.func.attr, None)
            elif base.operation == "receiver" and node.func.value.id == self.receiver:
                operation, target = "child", node.func.attr
            elif base.operation not in ("receiver", "stored", "global", "unknown"):
                operation, target, inputs = "method", node.func.attr, (base,)
            else:
                base.uses += 1
        else:
            callee = self._evaluate(node.func)
            if callee.operation == "global" and callee.node is node.func:
                operation, target = "function", callee.target
        inputs += self._all(node.args)
        keywords = {k.arg or "**": self._evaluate(k.value) for k in node.keywords}
        if "**" in keywords or any(isinstance(a, ast.Starred) for a in node.args):
            operation = "unknown"
        return self._value(node, operation, target, inputs, keywords)


def _names(nodes: list[ast.AST], *contexts: type[ast.expr_context]) -> list[str]:
    names = [node for node in nodes if isinstance(node, ast.Name)]
    return [node.id for node in names if not contexts or isinstance(node.ctx, contexts)]


def _expressions(node: ast.expr) -> list[ast.expr]:
    return [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)]


def _blocks(statement: ast.stmt) -> list[list[ast.stmt]]:
    """The blocks of a statement; none of a definition."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return []
    parts = [statement, *getattr(statement, "handlers", []), *getattr(statement, "cases", [])]
    fields = ("body", "orelse", "finalbody")
    return [getattr(part, field) for part in parts for field in fields if getattr(part, field, [])]
