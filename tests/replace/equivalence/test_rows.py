"""replace_activations on modules that read or overwrite what stands between the parts of a pattern,
or compute a part in another context (rows.py), or whose code was changed: results, gradients and
exceptions stay the same. Changes of a model's parts are in test_replace_changes.py.
"""

import importlib.util
import sys

import pytest
import torch
from torch.nn import SiLU

from tests.replace.equivalence.outcomes import MODES, difference, outcome, replace
from tests.replace.equivalence.rows import CASES, GateInNoGrad, HardsigmoidInPlace, Parts


@pytest.mark.parametrize("training", [False, True], ids=["no_grad", "training"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", CASES)
def test_row(name, mode, training):
    models = []
    for _ in range(2):
        torch.manual_seed(0)
        models.append(CASES[name]().double())
    x = torch.randn(4, 6, dtype=torch.float64)
    expected = outcome(models[0], x, training)
    replacement = replace(models[1], mode)
    assert not difference(outcome(models[1], x, training), expected)
    if name.startswith("Written"):
        return  # a second call may find other weights
    replacement.restore()
    assert not difference(outcome(models[1], x, training), expected)


@pytest.mark.parametrize("mode", MODES)
def test_numbers_of_the_report(mode):
    model = GateInNoGrad(SiLU()).double()
    replace(model, mode)
    x = torch.ones(1, 1, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(model(x), x)
    assert abs(float(gradient) - 0.731058578630005) < 1e-12
    model = HardsigmoidInPlace().double()
    replace(model, mode)
    with torch.no_grad():
        y = float(model(torch.full((1, 1), -1.0, dtype=torch.float64)))
    assert abs(y + 0.158655253931457 / 3) < 1e-12


# Autocast, which leaves float64 as it is


class Autocast(Parts):
    def forward(self, x):
        with torch.autocast("cpu", torch.bfloat16):
            h = self.fc1(x)
        g = self.act(h) * self.up(x)
        with torch.autocast("cpu", torch.bfloat16):
            y = self.fc2(g)
            g = self.act(self.fc1(x))
        with torch.autocast("cpu", enabled=False):
            return y, g, self.fc2(g.float())


@pytest.mark.parametrize("training", [False, True], ids=["no_grad", "training"])
@pytest.mark.parametrize("mode", MODES)
def test_autocast(mode, training):
    model = Autocast()
    x = torch.randn(4, 6)
    with torch.set_grad_enabled(training):
        expected = model(x)
        replace(model, mode)
        assert not difference(model(x), expected, 2**-7)


# Stale decisions


@pytest.mark.parametrize("when", ["before", "after", "instance before", "instance after"])
@pytest.mark.parametrize("mode", MODES)
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


SOURCE = """
from tests.replace.equivalence.rows import Parts

class Edited(Parts):
    def forward(self, x):
        return self.fc2({running})
"""


@pytest.mark.parametrize("again", [False, True], ids=["once", "again"])
@pytest.mark.parametrize("mode", MODES)
def test_file_is_edited(again, mode, tmp_path, monkeypatch):
    """The text shows a pattern, the running code computes something else."""
    path = tmp_path / "edited.py"
    path.write_text(SOURCE.format(running="self.act(self.fc1(x) + 1) + self.fc1(x)"))
    spec = importlib.util.spec_from_file_location("edited", path)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "edited", module)
    spec.loader.exec_module(module)
    model = module.Edited().double()
    x = torch.randn(4, 6, dtype=torch.float64)
    expected = [outcome(model, x, training) for training in (False, True)]
    if again:
        replace(module.Edited(), mode)
    path.write_text(SOURCE.format(running="self.act(self.fc1(x)) * self.up(x)"))
    replace(model, mode)
    for training in (False, True):
        assert not difference(outcome(model, x, training), expected[training])
