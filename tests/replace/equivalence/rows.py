"""For test_rows.py: modules that read or overwrite intermediates of a pattern, or compute a part in
another context."""

from functools import cached_property

import torch
import torch.nn.functional as F  # noqa: F401  for the texts
from torch.nn import GELU, Hardsigmoid, Linear, Module, ReLU, Sequential

from tests.replace.replacements import modules


class Parts(Module):
    def __init__(self, act=None):
        super().__init__()
        self.fc1, self.up, self.fc2 = Linear(6, 8), Linear(6, 8), Linear(8, 6)
        self.act = act or GELU()
        self.sigmoid = Hardsigmoid(inplace=True)
        self.overwriting = Sequential(ReLU(True), Linear(6, 8))
        self.net = Sequential(Linear(6, 6), GELU(), Linear(6, 6))


class Rounded(torch.autograd.graph.saved_tensors_hooks):
    """Saves bfloat16 for backward, which is visible in the gradients."""

    def __init__(self):
        super().__init__(lambda tensor: tensor.bfloat16(), lambda tensor: tensor.double())


def clipped_(x):
    return x.clamp_(-0.5, 0.5)


def in_another_order(module, x):
    return module.fc2(module.fc1(x)) + module.act(x)


# The bodies of forward
FORWARDS = {
    "Plain": "return self.fc2(self.act(self.fc1(x)) * self.up(x)) + self.fc2(self.act(self.up(x)))",
    # A part computed in another context
    "GateInNoGrad": """
        with torch.no_grad():
            g = self.act(x)
        return g * x""",
    "FactorInNoGrad": """
        h = self.act(self.fc1(x))
        with torch.no_grad():
            up = self.up(x)
        return self.fc2(h * up)""",
    "ProductInNoGrad": """
        h = self.act(self.fc1(x))
        with torch.no_grad():
            h = h * self.up(x)
        return self.fc2(h) + x""",
    "LinearInNoGrad": """
        with torch.no_grad():
            h = self.fc1(x)
        h = self.act(h)
        with torch.no_grad():
            return self.fc2(h)""",
    "EnableGrad": """
        with torch.no_grad():
            with torch.enable_grad():
                h = self.act(self.fc1(x))
            h = self.fc2(h)
        return h + x""",
    "SetGradEnabled": """
        torch.set_grad_enabled(False)
        h = self.fc1(x)
        torch.set_grad_enabled(True)
        h = self.act(h)
        torch.set_grad_enabled(False)
        up = self.up(x)
        torch.set_grad_enabled(True)
        return self.fc2(h * up)""",
    "WithSetGradEnabled": """
        with torch.set_grad_enabled(False):
            g = self.act(self.fc1(x))
        return self.fc2(g * self.up(x))""",
    "InferenceMode": """
        with torch.inference_mode():
            g = self.act(x)
        return g * x""",
    "LinearInInferenceMode": """
        with torch.inference_mode():
            h = self.fc1(x)
        return self.fc2(self.act(h))""",
    "SavedTensorsHooks": """
        with Rounded():
            g = self.act(x)
        return g * x""",
    "ProductInSavedTensorsHooks": """
        g = self.act(self.fc1(x))
        with Rounded():
            return g * self.up(x)""",
    # A tensor is overwritten before it is read
    "HardsigmoidInPlace": "return self.act(x) * self.sigmoid(x)",
    "ReluInPlace": "return self.act(x) * torch.relu_(x)",
    "ReluWithTrue": "return self.act(x) * F.relu(x, True)",
    "ReluWithKeyword": "return self.act(x) * F.relu(x, inplace=True)",
    "SequentialInPlace": "return self.fc2(self.act(self.fc1(x)) * self.overwriting(x))",
    "HelperInPlace": """
        h = self.fc1(x)
        up = self.up(x)
        return self.fc2(self.act(h) * up * clipped_(h))""",
    "Written": """
        h = self.fc1(x)
        g = self.act(h)
        h.mul_(2)
        return self.fc2(g * h)""",
    "WrittenIndex": """
        up = self.up(x)
        g = self.act(self.fc1(x))
        up[0] = 1
        return self.fc2(g * up)""",
    "WrittenView": """
        h = self.fc1(x)
        flat = h.view(-1)
        g = self.act(h)
        flat.zero_()
        return self.fc2(g) + self.fc2(h)""",
    "WrittenOut": """
        h = self.fc1(x).detach()
        g = self.act(h)
        torch.mul(h, 2, out=h)
        return self.fc2(g) * self.fc2(h)""",
    "WrittenGate": """
        g = self.act(self.fc1(x))
        g += 1
        return self.fc2(g)""",
    "WrittenSum": """
        h = self.fc1(x)
        h.relu_()
        return self.fc2(self.act(h))""",
    "WrittenInput": """
        h = self.fc1(x)
        x.relu_()
        return self.fc2(self.act(h)) + x""",
    "WrittenWeight": """
        h = self.fc1(x)
        with torch.no_grad():
            self.fc1.bias.mul_(2)
        return self.fc2(self.act(h))""",
    # An input without gradient is not saved for backward, so it may be overwritten.
    "WrittenLater": """
        with torch.no_grad():
            h = self.fc1(x)
        y = self.fc2(self.act(h) * self.up(x)) + self.fc2(self.act(h))
        h.zero_()
        return y + self.fc2(h)""",
    # An intermediate is read elsewhere
    "NetByIndex": "return self.net(x) + self.net[2](self.net[1](self.net[0](x) + x))",
    "NetInALoop": """
        for layer in self.net:
            x = layer(x) + x
        return x""",
    "NetBySlices": "return self.net(x) + self.net[2:](self.net[:1](x)) + self.net[1:2](x)",
    "NamedChildren": "return self.net(x) + sum(child(x) for _, child in self.net.named_children())",
    "ByGetattr": """
        fc1, act, fc2 = (getattr(self, name) for name in ("fc1", "act", "fc2"))
        return self.fc2(self.act(self.fc1(x))) + fc2(fc1(x)) + act(x)""",
    "ByModules": """
        fc1, act, fc2 = (self._modules[name] for name in ("fc1", "act", "fc2"))
        return self.fc2(self.act(self.fc1(x))) + fc2(fc1(x)) + act(x)""",
    "ByAlias": """
        me = self
        return self.fc2(self.act(self.fc1(x))) + me.fc2(me.fc1(x)) + me.act(x)""",
    "ByHelper": "return self.fc2(self.act(self.fc1(x))) + in_another_order(self, x)",
    "ByClosure": """
        h = self.fc1(x)
        later = lambda: h.square()  # noqa: E731
        return self.fc2(self.act(h)) + self.fc2(later())""",
    "ByLocals": """
        h = self.fc1(x)
        g = self.act(h)
        return self.fc2(g) + self.fc2(locals()["h"]) + self.fc2(locals()["g"])""",
    # Layouts
    "SparseFactor": """
        factor = torch.eye(6, dtype=x.dtype)[: len(x)].to_sparse()
        return self.act(x) * factor""",
    "Transposed": "return self.fc2((self.act(self.fc1(x).t()) * self.up(x).t()).t())",
}


class Decorated(Parts):
    @torch.no_grad()
    def gate(self, x):
        return self.act(self.fc1(x))

    def forward(self, x):
        return self.fc2(self.gate(x) * self.up(x))


class Parent(Module):
    def __init__(self):
        super().__init__()
        self.mlp = CASES["Plain"]()

    def forward(self, x):
        return self.mlp(x) + self.mlp.fc2(self.mlp.fc1(x)) + self.mlp.act(x)


class ByMethod(Parts):
    other = in_another_order

    def forward(self, x):
        return self.fc2(self.act(self.fc1(x))) + self.other(x)


class ByCachedProperty(Parts):
    def __init__(self):
        super().__init__()
        self.early  # noqa: B018

    early = cached_property(lambda self: (self.fc1, self.act, self.fc2))
    late = cached_property(lambda self: (self.fc1, self.act, self.fc2))

    def forward(self, x):
        y = self.fc2(self.act(self.fc1(x)))
        for fc1, act, fc2 in (self.early, self.late):
            y = y + fc2(fc1(x)) + act(x)
        return y


CASES = modules(Parts, FORWARDS, globals()) | {
    cls.__name__: cls for cls in (Decorated, Parent, ByMethod, ByCachedProperty)
}
