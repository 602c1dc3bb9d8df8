"""Modules that read or overwrite what stands between the parts of a pattern, or compute a part in
another context, for test_replace_rows.py."""

from functools import cached_property

import torch
import torch.nn.functional as F
from torch.nn import GELU, Hardsigmoid, Linear, Module, ReLU, Sequential

CASES = {}


def case(cls):
    CASES[cls.__name__] = cls
    return cls


class Parts(Module):
    def __init__(self, act=None):
        super().__init__()
        self.fc1, self.up, self.fc2 = Linear(6, 8), Linear(6, 8), Linear(8, 6)
        self.act = act or GELU()
        self.sigmoid = Hardsigmoid(inplace=True)
        self.overwriting = Sequential(ReLU(True), Linear(6, 8))
        self.net = Sequential(Linear(6, 6), GELU(), Linear(6, 6))


@case
class Plain(Parts):
    def forward(self, x):
        return self.fc2(self.act(self.fc1(x)) * self.up(x)) + self.fc2(self.act(self.up(x)))


# Evaluated outside of its context


@case
class GateInNoGrad(Parts):
    def forward(self, x):
        with torch.no_grad():
            g = self.act(x)
        return g * x


@case
class FactorInNoGrad(Parts):
    def forward(self, x):
        h = self.act(self.fc1(x))
        with torch.no_grad():
            up = self.up(x)
        return self.fc2(h * up)


@case
class ProductInNoGrad(Parts):
    def forward(self, x):
        h = self.act(self.fc1(x))
        with torch.no_grad():
            h = h * self.up(x)
        return self.fc2(h) + x


@case
class LinearInNoGrad(Parts):
    def forward(self, x):
        with torch.no_grad():
            h = self.fc1(x)
        h = self.act(h)
        with torch.no_grad():
            return self.fc2(h)


@case
class EnableGrad(Parts):
    def forward(self, x):
        with torch.no_grad():
            with torch.enable_grad():
                h = self.act(self.fc1(x))
            h = self.fc2(h)
        return h + x


@case
class SetGradEnabled(Parts):
    def forward(self, x):
        torch.set_grad_enabled(False)
        h = self.fc1(x)
        torch.set_grad_enabled(True)
        h = self.act(h)
        torch.set_grad_enabled(False)
        up = self.up(x)
        torch.set_grad_enabled(True)
        return self.fc2(h * up)


@case
class WithSetGradEnabled(Parts):
    def forward(self, x):
        with torch.set_grad_enabled(False):
            g = self.act(self.fc1(x))
        return self.fc2(g * self.up(x))


@case
class Decorated(Parts):
    @torch.no_grad()
    def gate(self, x):
        return self.act(self.fc1(x))

    def forward(self, x):
        return self.fc2(self.gate(x) * self.up(x))


@case
class InferenceMode(Parts):
    def forward(self, x):
        with torch.inference_mode():
            g = self.act(x)
        return g * x


@case
class LinearInInferenceMode(Parts):
    def forward(self, x):
        with torch.inference_mode():
            h = self.fc1(x)
        return self.fc2(self.act(h))


class Rounded(torch.autograd.graph.saved_tensors_hooks):
    """Keeps bfloat16 for backward, which shows in gradients."""

    def __init__(self):
        super().__init__(lambda tensor: tensor.bfloat16(), lambda tensor: tensor.double())


@case
class SavedTensorsHooks(Parts):
    def forward(self, x):
        with Rounded():
            g = self.act(x)
        return g * x


@case
class ProductInSavedTensorsHooks(Parts):
    def forward(self, x):
        g = self.act(self.fc1(x))
        with Rounded():
            return g * self.up(x)


# Read after it was overwritten


@case
class HardsigmoidInPlace(Parts):
    def forward(self, x):
        return self.act(x) * self.sigmoid(x)


@case
class ReluInPlace(Parts):
    def forward(self, x):
        return self.act(x) * torch.relu_(x)


@case
class ReluWithTrue(Parts):
    def forward(self, x):
        return self.act(x) * F.relu(x, True)


@case
class ReluWithKeyword(Parts):
    def forward(self, x):
        return self.act(x) * F.relu(x, inplace=True)


@case
class SequentialInPlace(Parts):
    def forward(self, x):
        return self.fc2(self.act(self.fc1(x)) * self.overwriting(x))


def clipped_(x):
    return x.clamp_(-0.5, 0.5)


@case
class HelperInPlace(Parts):
    def forward(self, x):
        h = self.fc1(x)
        up = self.up(x)
        return self.fc2(self.act(h) * up * clipped_(h))


@case
class Written(Parts):
    def forward(self, x):
        h = self.fc1(x)
        g = self.act(h)
        h.mul_(2)
        return self.fc2(g * h)


@case
class WrittenIndex(Parts):
    def forward(self, x):
        up = self.up(x)
        g = self.act(self.fc1(x))
        up[0] = 1
        return self.fc2(g * up)


@case
class WrittenView(Parts):
    def forward(self, x):
        h = self.fc1(x)
        flat = h.view(-1)
        g = self.act(h)
        flat.zero_()
        return self.fc2(g) + self.fc2(h)


@case
class WrittenOut(Parts):
    def forward(self, x):
        h = self.fc1(x).detach()
        g = self.act(h)
        torch.mul(h, 2, out=h)
        return self.fc2(g) * self.fc2(h)


@case
class WrittenGate(Parts):
    def forward(self, x):
        g = self.act(self.fc1(x))
        g += 1
        return self.fc2(g)


@case
class WrittenSum(Parts):
    def forward(self, x):
        h = self.fc1(x)
        h.relu_()
        return self.fc2(self.act(h))


@case
class WrittenInput(Parts):
    def forward(self, x):
        h = self.fc1(x)
        x.relu_()
        return self.fc2(self.act(h)) + x


@case
class WrittenWeight(Parts):
    def forward(self, x):
        h = self.fc1(x)
        with torch.no_grad():
            self.fc1.bias.mul_(2)
        return self.fc2(self.act(h))


@case
class WrittenLater(Parts):
    """The gate's input is not kept for backward where it has no gradient, and may be written."""

    def forward(self, x):
        with torch.no_grad():
            h = self.fc1(x)
        y = self.fc2(self.act(h) * self.up(x)) + self.fc2(self.act(h))
        h.zero_()
        return y + self.fc2(h)


# Somebody else reads the tensor between


@case
class NetByIndex(Parts):
    def forward(self, x):
        return self.net(x) + self.net[2](self.net[1](self.net[0](x) + x))


@case
class NetInALoop(Parts):
    def forward(self, x):
        for layer in self.net:
            x = layer(x) + x
        return x


@case
class NetBySlices(Parts):
    def forward(self, x):
        return self.net(x) + self.net[2:](self.net[:1](x)) + self.net[1:2](x)


@case
class NamedChildren(Parts):
    def forward(self, x):
        return self.net(x) + sum(child(x) for _, child in self.net.named_children())


@case
class Parent(Module):
    def __init__(self):
        super().__init__()
        self.mlp = Plain()

    def forward(self, x):
        return self.mlp(x) + self.mlp.fc2(self.mlp.fc1(x)) + self.mlp.act(x)


@case
class ByGetattr(Parts):
    def forward(self, x):
        fc1, act, fc2 = (getattr(self, name) for name in ("fc1", "act", "fc2"))
        return self.fc2(self.act(self.fc1(x))) + fc2(fc1(x)) + act(x)


@case
class ByModules(Parts):
    def forward(self, x):
        fc1, act, fc2 = (self._modules[name] for name in ("fc1", "act", "fc2"))
        return self.fc2(self.act(self.fc1(x))) + fc2(fc1(x)) + act(x)


@case
class ByAlias(Parts):
    def forward(self, x):
        me = self
        return self.fc2(self.act(self.fc1(x))) + me.fc2(me.fc1(x)) + me.act(x)


def in_another_order(module, x):
    return module.fc2(module.fc1(x)) + module.act(x)


@case
class ByHelper(Parts):
    def forward(self, x):
        return self.fc2(self.act(self.fc1(x))) + in_another_order(self, x)


@case
class ByMethod(Parts):
    other = in_another_order

    def forward(self, x):
        return self.fc2(self.act(self.fc1(x))) + self.other(x)


@case
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


@case
class ByClosure(Parts):
    def forward(self, x):
        h = self.fc1(x)
        later = lambda: h.square()  # noqa: E731
        return self.fc2(self.act(h)) + self.fc2(later())


@case
class ByLocals(Parts):
    def forward(self, x):
        h = self.fc1(x)
        g = self.act(h)
        return self.fc2(g) + self.fc2(locals()["h"]) + self.fc2(locals()["g"])


# Layouts


@case
class SparseFactor(Parts):
    def forward(self, x):
        factor = torch.eye(6, dtype=x.dtype)[: len(x)].to_sparse()
        return self.act(x) * factor


@case
class Transposed(Parts):
    def forward(self, x):
        return self.fc2((self.act(self.fc1(x).t()) * self.up(x).t()).t())
