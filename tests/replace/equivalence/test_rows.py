"""replace_activations on modules that read or overwrite intermediates of a pattern, or compute a
part in another context (rows.py): results, gradients and exceptions stay the same."""

import torch
from torch.nn import SiLU

from tests.cases import each
from tests.replace.equivalence.outcomes import MODES, difference, outcome, replace
from tests.replace.equivalence.rows import CASES, Parts

TRAINING = (False, True)


@each(name=CASES, mode=MODES, training=TRAINING)
def test_row(name, mode, training):
    models = []
    for _ in range(2):
        torch.default_generator.manual_seed(0)
        models.append(CASES[name]().double())
    x = torch.randn(4, 6, dtype=torch.float64)
    expected = outcome(models[0], x, training)
    replacement = replace(models[1], mode)
    assert not difference(outcome(models[1], x, training), expected)
    if name.startswith("Written"):
        return  # which may have changed the weights
    replacement.restore()
    assert not difference(outcome(models[1], x, training), expected)


@each(mode=MODES)
def test_values_by_hand(mode):
    """x * silu(x) at 1 has the derivative silu(1) where the gate has no gradient; with GELU,
    hardsigmoid_(x) * gelu(x) at -1 is gelu(-1) / 3."""
    model = CASES["GateInNoGrad"](SiLU()).double()
    replace(model, mode)
    x = torch.ones(1, 1, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(model(x), x)
    assert abs(float(gradient) - 0.731058578630005) < 1e-12
    model = CASES["HardsigmoidInPlace"]().double()
    replace(model, mode)
    with torch.no_grad():
        y = float(model(torch.full((1, 1), -1.0, dtype=torch.float64)))
    assert abs(y + 0.158655253931457 / 3) < 1e-12


class Autocast(Parts):
    """In float32, as autocast leaves float64 as it is."""

    def forward(self, x):
        with torch.autocast("cpu", torch.bfloat16):
            h = self.fc1(x)
        g = self.act(h) * self.up(x)
        with torch.autocast("cpu", torch.bfloat16):
            y = self.fc2(g)
            g = self.act(self.fc1(x))
        with torch.autocast("cpu", enabled=False):
            return y, g, self.fc2(g.float())


@each(mode=MODES, training=TRAINING)
def test_autocast(mode, training):
    model = Autocast()
    x = torch.randn(4, 6)
    with torch.set_grad_enabled(training):
        expected = model(x)
        replace(model, mode)
        assert not difference(model(x), expected, 2**-7)


# Code that is changed before or after the replacement


@each(mode=MODES, when=["before", "after", "instance before", "instance after"])
def test_forward_is_patched(when, mode):
    class Mlp(Parts):
        def forward(self, x):
            return self.fc2(self.act(self.fc1(x)) * self.up(x))

    def patched(self, x):
        return self.fc2(self.act(self.fc1(x)) + self.fc1(x)) + self.act(x)

    def patch():
        if "instance" in when:
            model.forward = patched.__get__(model)
        else:
            Mlp.forward = patched

    replace(Mlp(), mode)
    model = Mlp().double()
    x = torch.randn(4, 6, dtype=torch.float64)
    if "before" in when:
        patch()
    replace(model, mode)
    if "after" in when:
        outcome(model, x, True)
        patch()
    found = [outcome(model, x, training) for training in (False, True)]
    reference = Mlp().double()
    reference.load_state_dict(model.state_dict())
    reference.forward = patched.__get__(reference)
    for training in (False, True):
        assert not difference(found[training], outcome(reference, x, training))
