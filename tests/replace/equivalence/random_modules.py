"""Source of random modules with gates, linear layers, and anything that may come between them."""

from functools import partial

import torch

# What a module may hold. It holds those that its statements use.
CHILDREN = {
    "fc1": "nn.Linear(6, 6)",
    "fc2": "nn.Linear(6, 6)",
    "fc3": "nn.Linear(6, 6)",
    "fc4": "nn.Linear(6, 6)",
    "fc5": "nn.Linear(6, 6, bias=False)",
    "gate": "nn.Linear(6, 12)",
    "up": "nn.Linear(6, 12)",
    "down": "nn.Linear(12, 6)",
    "act": "nn.GELU()",
    "act2": "nn.GELU()",
    "act3": "nn.GELU()",
    "tanh": 'nn.GELU("tanh")',
    "silu": "nn.SiLU()",
    "silu2": "nn.SiLU()",
    "silu_": "nn.SiLU(inplace=True)",
    "relu_": "nn.ReLU(inplace=True)",
    "hardsigmoid_": "nn.Hardsigmoid(inplace=True)",
    "drop": "nn.Dropout(0.0)",
    "norm": "nn.LayerNorm(6)",
    "function": "F.gelu",
    "partial": 'partial(F.gelu, approximate="tanh")',
    "function_of_silu": "F.silu",
    "net": "nn.Sequential(nn.Linear(6, 6), nn.GELU(), nn.Linear(6, 6))",
    "net_": "nn.Sequential(nn.ReLU(inplace=True), nn.Linear(6, 6))",
    "layers": "nn.ModuleList([nn.Linear(6, 6), nn.SiLU(), nn.Linear(6, 6)])",
    "mlp": "Mlp()",
    "glu": "Gated()",
}

HEADER = """\
import torch
import torch.nn.functional as F
from functools import partial
from torch import nn
from tests.replace.equivalence.outcomes import Gated, Mlp
from tests.replace.equivalence.random_modules import copies, doubled, read_fc1, write_


class Random(nn.Module):
    def __init__(self):
        super().__init__()
        self.flag = {flag}
        self.stash = 0.0
{children}
"""

CONTEXTS = [
    "torch.no_grad()",
    "torch.no_grad()",
    "torch.enable_grad()",
    "torch.set_grad_enabled(self.flag)",
    "torch.inference_mode()",
    'torch.autocast("cpu", enabled=False)',
    "copies()",
]


def doubled(x):
    return 2 * x


def write_(x):
    return x.mul_(0.5)


def read_fc1(module, x):
    return module.fc1(x) if hasattr(module, "fc1") else x


def copies():
    """Saves copies for backward, which no later statement overwrites."""
    return torch.autograd.graph.saved_tensors_hooks(torch.Tensor.clone, torch.Tensor.detach)


class Writer:
    """Writes one class. Each tensor name has a width, 6 or 12, and is bound on every path."""

    def __init__(self, rng):
        self.rng = rng
        self.held = set()
        self.methods = []
        self.made = 0

    def source(self):
        body = self.method("forward", self.rng.choice([1, 1, 2, 2, 3, 4, 5]))
        methods = "\n".join([*self.methods, body])
        used = [name for name in CHILDREN if name in self.held]
        children = "\n".join(f"        self.{name} = {CHILDREN[name]}" for name in used)
        return HEADER.format(flag=self.rng.random() < 0.5, children=children) + "\n" + methods

    def method(self, name, count):
        outer = getattr(self, "lines", None), getattr(self, "names", None)
        self.lines, self.names = [f"    def {name}(self, x):"], {"x": 6}
        self.block(2, count)
        last = [lambda: self.fused(1), lambda: f"{self.name(6)} + {self.expression(6, 1)}",
                lambda: self.name(6)]  # fmt: skip
        self.emit(2, f"return {self.rng.choice(last)()}")
        text = "\n".join(self.lines) + "\n"
        self.lines, self.names = outer
        return text

    def emit(self, depth, text):
        self.lines.append("    " * depth + text)

    def child(self, *names):
        """One of these, mostly one that is not used yet."""
        fresh = [name for name in names if name not in self.held]
        name = self.rng.choice(fresh if fresh and self.rng.random() < 0.8 else names)
        self.held.add(name)
        return f"self.{name}"

    def activation(self):
        if self.rng.random() < 0.25:
            return self.child("silu_", "function", "partial", "function_of_silu")
        return self.child("act", "act2", "act3", "tanh", "silu", "silu2")

    def linear(self):
        return self.child("fc1", "fc2", "fc3", "fc4", "fc5")

    def name(self, width):
        names = [n for n, w in self.names.items() if w == width]
        if names:
            return self.rng.choice(names[-3:] if self.rng.random() < 0.7 else names)
        return f"{self.child('up', 'gate')}({self.name(6)})"

    def new(self, width):
        if self.rng.random() < 0.3:
            names = [n for n, w in self.names.items() if w == width]
            if names:
                return self.rng.choice(names)
        self.made += 1
        name = f"{self.rng.choice('hgyuv')}{self.made}"
        self.names[name] = width
        return name

    def fused(self, depth):
        """An expression of width 6 with one of the patterns."""
        e = partial(self.expression, depth=depth)
        act, linear = self.activation, self.linear
        return self.rng.choice([
            lambda: f"{linear()}({act()}({linear()}({e(6)})))",
            lambda: f"{act()}({linear()}({e(6)}))",
            lambda: f"{linear()}({act()}({e(6)}))",
            lambda: f"{act()}({e(6)}) * {e(6)}",
            lambda: f"{e(6)} * {act()}({e(6)})",
            lambda: f"{act()}({linear()}({e(6)})) * {linear()}({e(6)})",
            lambda: f"{self.child('down')}({act()}({self.child('gate')}({e(6)}))"
                    f" * {self.child('up')}({e(6)}))",
            lambda: f"{self.child('down')}({self.child('up')}({e(6)}) * {act()}({e(12)}))",
            lambda: self.overwritten(self.name(6)),
            lambda: f"{self.child('mlp', 'glu', 'net')}({e(6)})",
        ])()  # fmt: skip

    def overwritten(self, name):
        write = self.rng.choice(["torch.relu_", "write_", self.child("relu_", "hardsigmoid_")])
        return f"{self.activation()}({name}) * {write}({name})"

    def expression(self, width, depth):
        if depth <= 0 or self.rng.random() < 0.35:
            return self.name(width)
        if width == 6 and self.rng.random() < 0.4:
            return self.fused(depth - 1)
        e = partial(self.expression, depth=depth - 1)
        same = [
            lambda: f"{self.activation()}({e(width)})",
            lambda: f"F.gelu({e(width)})",
            lambda: f"F.silu({e(width)})",
            lambda: f'F.gelu({e(width)}, approximate="tanh")',
            lambda: f"({e(width)} + {e(width)})",
            lambda: f"({e(width)} * {e(width)})",
            lambda: f"torch.sigmoid({e(width)})",
            lambda: f"{e(width)}.clamp(max=0.5)",
            lambda: f"{self.name(width)}.detach()",
            lambda: f"{e(width)}.detach()",
            lambda: f"{e(width)}.clone()",
            lambda: f"{self.name(width)}.view(-1, {width})",
            lambda: f"{self.name(width)}[...]",
            lambda: f"{e(width)}.t().t()",
            lambda: f"doubled({e(width)})",
            lambda: f"(lambda t: t * {self.name(width)})({e(width)})",
            lambda: f"sum([{e(width)} * t for t in ({self.name(width)}, 2.0)])",
            lambda: f"({e(width)} if self.flag else {e(width)})",
            lambda: self.walrus(width, depth),
            lambda: f"F.relu({self.name(width)}, True)",
            lambda: f"torch.relu_({self.name(width)})",
            lambda: f"write_({self.name(width)})",
            lambda: f"{self.child('relu_', 'hardsigmoid_')}({self.name(width)})",
        ]
        narrow = [
            lambda: f"{self.linear()}({e(6)})",
            lambda: f"{self.child('down')}({e(12)})",
            lambda: f"{e(12)}[..., ::2]",
            lambda: f"{e(12)}.chunk(2, -1)[{self.rng.randint(0, 1)}]",
            lambda: f"{self.child('drop', 'norm')}({e(6)})",
            lambda: f"{self.child('net_')}({self.name(6)})",
            lambda: f"self.{self.index('net')}({e(6)})",
            lambda: f"self.{self.index('layers')}({e(6)})",
            lambda: f"read_fc1(self, {e(6)})",
            lambda: f'getattr(self, "{self.linear()[5:]}")({e(6)})',
            lambda: f'self._modules["{self.linear()[5:]}"]({e(6)})',
            lambda: f"{self.helper()}({e(6)})",
        ]
        wide = [
            lambda: f"{self.child('up', 'gate')}({e(6)})",
            lambda: f"torch.cat([{e(6)}, {e(6)}], -1)",
        ]
        return self.rng.choice(same + (narrow if width == 6 else wide * 4))()

    def walrus(self, width, depth):
        value = self.expression(width, depth - 1)
        self.made += 1
        name = f"w{self.made}"
        return f"(({name} := {value}) + doubled({name}))"

    def index(self, name):
        self.child(name)
        return f"{name}[{self.rng.randint(0, 2)}]"

    def helper(self):
        if len(self.methods) < 2:
            name = f"helper{self.made}"
            self.made += 1
            self.methods.append("")  # a placeholder, so that no helper calls itself
            index = len(self.methods) - 1
            self.methods[index] = self.method(name, self.rng.randint(0, 2))
            return f"self.{name}"
        return self.child("fc1")

    def block(self, depth, count, nested=0):
        for _ in range(count):
            if self.rng.random() < 0.5:
                patterns = [self.assigned, self.mlp, self.product, self.halves]
                self.rng.choice(patterns)(depth)
                if self.rng.random() < 0.2:
                    self.write(depth, 6, nested)
            else:
                self.statement(depth, nested)

    # Statements that form one pattern, now and then with another statement in between

    def constant(self, depth):
        """Now and then a name without gradient, which a gate does not save for backward."""
        if self.rng.random() < 0.15:
            value = self.expression(6, 1)
            self.emit(depth, f"{self.new(6)} = {value}.detach()")

    def assigned(self, depth):
        self.constant(depth)
        value = self.fused(1)
        self.emit(depth, f"{self.new(6)} = {value}")

    def between(self, depth):
        chance = self.rng.random()
        if chance < 0.15:
            self.write(depth, 6, 2)
        elif chance < 0.35:
            self.statement(depth, 2)

    def mlp(self, depth):
        value = self.expression(6, 1)
        name = self.new(6)
        self.emit(depth, f"{name} = {self.linear()}({value})")
        for part in (self.activation, self.linear):
            self.between(depth)
            value = f"{part()}({name})"
            name = name if self.rng.random() < 0.6 else self.new(6)
            self.emit(depth, f"{name} = {value}")

    def product(self, depth):
        self.constant(depth)
        value, other = self.expression(6, 1), self.expression(6, 1)
        gate = self.new(6)
        self.emit(depth, f"{gate} = {self.activation()}({value})")
        self.between(depth)
        up = self.new(6)
        self.emit(depth, f"{up} = {self.linear()}({other})")
        self.between(depth)
        forms = ["{0} = {0} * {1}", "{0} = {1} * {0}", "{0} *= {1}", "{0} = torch.mul({0}, {1})"]
        if self.rng.random() < 0.4:
            self.emit(depth, f"{self.new(6)} = {gate} * {up}")
        else:
            self.emit(depth, self.rng.choice(forms).format(gate, up))

    def halves(self, depth):
        whole = self.expression(12, 1)
        self.made += 1
        a, b, act = f"a{self.made}", f"b{self.made}", self.activation()
        if self.rng.random() < 0.5:
            self.emit(depth, f"{a}, {b} = {whole}.chunk(2, -1)")
        else:
            self.emit(depth, f"{a} = {whole}")
            self.emit(depth, f"{a}, {b} = {a}[..., ::2], {a}[..., 1::2]")
        self.names |= {a: 6, b: 6}
        self.between(depth)
        product = self.rng.choice([f"{act}({a}) * {b}", f"{b} * {act}({a})"])
        if self.rng.random() < 0.4:
            product = f"{self.linear()}({product})"
        self.emit(depth, f"{self.new(6)} = {product}")

    def statement(self, depth, nested):
        width = self.rng.choice([6, 6, 12])
        simple = [self.bind, self.bind, self.write, self.write, self.keep]
        compound = [self.context, self.context, self.branch, self.loop, self.attempt, self.inner,
                    self.early, self.alias]  # fmt: skip
        self.rng.choice(simple + (compound if nested < 2 else []))(depth, width, nested)

    def bind(self, depth, width, nested):
        value = self.expression(width, 2)
        self.emit(depth, f"{self.new(width)} = {value}")

    def write(self, depth, width, nested):
        name, other = self.name(width), self.expression(width, 1)
        if name.startswith("self"):
            return
        self.emit(depth, self.rng.choice([
            f"{name}.mul_(0.5)", f"{name} += {other}", f"{name} *= 0.5", f"{name}[0] = 0.1",
            f"{name}[...] = 2 * {name}", f"F.relu({name}, True)", f"{name}.view(-1).add_(0.1)",
            f"{name}.t().mul_(0.5)", f"write_({name})",
            f"torch.mul({name}, 0.5, out={name})", f"{name}.detach().mul_(0.5)",
            f"{name}[:, ::2] -= 0.1",
        ]))  # fmt: skip

    def keep(self, depth, width, nested):
        if self.rng.random() < 0.5:
            self.emit(depth, f"self.stash = {self.name(6)}")
            value = self.expression(6, 2)
            self.emit(depth, f"{self.new(6)} = {value} + self.stash")
        else:
            name = self.name(width)
            self.emit(depth, f"view = {name}.view({width}, -1)")
            self.emit(depth, "view *= 0.5")

    def context(self, depth, width, nested):
        context = self.rng.choice(CONTEXTS)
        self.emit(depth, f"with {context}:")
        self.block(depth + 1, self.rng.randint(1, 2), nested + 1)
        self.emit(depth + 1, "pass")

    def scoped(self, depth, nested):
        """A block that may not run: its new names are forgotten after it."""
        names = dict(self.names)
        self.block(depth, 1, nested + 1)
        self.emit(depth, "pass")
        self.names = names

    def branch(self, depth, width, nested):
        condition = self.rng.choice(["self.flag", "self.training", "x.sum() > 0"])
        self.emit(depth, f"if {condition}:")
        self.scoped(depth + 1, nested)
        if self.rng.random() < 0.5:
            self.emit(depth, "else:")
            self.scoped(depth + 1, nested)

    def loop(self, depth, width, nested):
        name = self.name(6)
        if not name.startswith("self") and self.rng.random() < 0.6:
            layers = self.child("net", "layers")
            part = self.rng.choice(["", "", "[:2]", "[1:]", ".children()"])
            self.emit(depth, f"for layer in {layers}{part}:")
            add = self.rng.choice(["", f" + {self.name(6)}"])
            self.emit(depth + 1, f"{name} = layer({name}){add}")
        else:
            self.emit(depth, "for _ in range(2):")
            self.scoped(depth + 1, nested)

    def attempt(self, depth, width, nested):
        self.emit(depth, "try:")
        self.scoped(depth + 1, nested)
        end, handler = self.rng.choice(
            [("raise ValueError", "except ValueError:"), ("pass", "finally:")]
        )
        self.emit(depth + 1, end)
        self.emit(depth, handler)
        self.scoped(depth + 1, nested)

    def inner(self, depth, width, nested):
        self.made += 1
        name = f"inner{self.made}"
        self.emit(depth, f"def {name}(t):")
        self.emit(depth + 1, f"return t + {self.expression(width, 2)}")
        self.between(depth)
        value = self.name(width)
        self.emit(depth, f"{self.new(width)} = {name}({value})")

    def early(self, depth, width, nested):
        self.emit(depth, "if self.flag and not self.training:")
        self.emit(depth + 1, f"return {self.fused(0)}")

    def alias(self, depth, width, nested):
        self.emit(depth, "me = self")
        value = f"me.{self.child('fc1', 'fc2', 'act')[5:]}({self.name(6)})"
        self.emit(depth, f"{self.new(6)} = {value}")
