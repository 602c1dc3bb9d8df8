"""replace_activations on random modules (random_modules.py), with random changes before and after
it: results, gradients and exceptions stay the same."""

import importlib.util
import random
import sys

import pytest
import torch

from tests.replace.equivalence.changes import random_change
from tests.replace.equivalence.outcomes import MODES, difference, outcome, replace
from tests.replace.equivalence.random_modules import Writer

# About backward hooks whose inputs require no gradient, and the old weight_norm
pytestmark = pytest.mark.filterwarnings("ignore")

CHUNK = 50


class Pair:
    """A model and a replaced copy, which go through the same changes."""

    def __init__(self, cls, mode, rng):
        self.rng, self.mode, self.cls = rng, mode, cls
        self.models = []
        for _ in range(2):
            torch.default_generator.manual_seed(0)
            self.models.append(cls().double())
        self.log = []
        self.fused = False
        self.replacements = []

    def replace(self, mode):
        self.log.append(f"replace {mode}")
        self.replacements.append(replace(self.models[1], mode))
        changed = self.replacements[-1].changed
        self.fused |= any(not isinstance(change.old, torch.nn.Module) for change in changed)

    def restore(self):
        self.log.append("restore")
        try:
            self.replacements.pop().restore()
        except RuntimeError:  # a later change is in the way
            self.replacements.clear()

    def change(self):
        name, change = random_change(self.rng, self.models[0])
        self.log.append(name)
        errors = [None, None]
        for index, model in enumerate(self.models):
            try:
                self.models[index] = change(model)
            except Exception as error:
                errors[index] = error
        assert type(errors[0]) is type(errors[1]), errors

    def patch_class(self):
        self.log.append("class patched")
        original = self.cls.forward

        def forward(self, x):
            return 2 * original(self, x)

        self.cls.forward = forward

    def compare(self):
        raised = 0
        x = torch.randn(4, 6, dtype=torch.float64)
        for training in (False, True):
            expected = outcome(self.models[0], x, training)
            found = difference(outcome(self.models[1], x, training), expected)
            assert not found, f"{'training' if training else 'no_grad'}: {found}"
            raised += any(isinstance(value, type) for value in expected)
        return raised

    def run(self):
        rng = self.rng
        for _ in range(rng.choice([0, 0, 0, 1, 2])):
            self.change()
        self.replace(self.mode)
        self.raised = self.compare()
        for _ in range(rng.choice([0, 0, 1, 1, 2, 3])):
            step = rng.random()
            if step < 0.1:
                self.replace(rng.choice([*MODES]))
            elif step < 0.25 and self.replacements:
                self.restore()
            elif step < 0.3 and "forward" not in vars(self.models[0]):
                self.patch_class()
            else:
                self.change()
            self.compare()


def load(seed, folder):
    """A random class, in a file so that its source can be read."""
    name = f"random_module_{seed}"
    path = folder / f"{name}.py"
    source = Writer(random.Random(seed)).source()
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(name, path)
    sys.modules[name] = importlib.util.module_from_spec(spec)  # for pickling
    spec.loader.exec_module(sys.modules[name])
    return sys.modules[name].Random, source


def check(seed, folder):
    """Compare in every mode; return the modes in which the module was fused."""
    cls, source = load(seed, folder)
    forward = cls.forward
    fused = set()
    try:
        for mode in MODES:
            pair = Pair(cls, mode, random.Random(f"{seed} {mode}"))
            try:
                pair.run()
            except Exception as error:
                pytest.fail(f"seed {seed}, {mode}: {', '.join(pair.log)}:\n{error!r}\n\n{source}")
            finally:
                cls.forward = forward
            if pair.fused:
                fused.add(mode)
    finally:
        del sys.modules[cls.__module__]
    return fused


@pytest.mark.parametrize(
    "first", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(CHUNK, 1000, CHUNK))]
)
def test_random_modules(first, tmp_path):
    fused = [check(seed, tmp_path) for seed in range(first, first + CHUNK)]
    assert set().union(*fused) == {*MODES}
    assert sum(map(bool, fused)) > CHUNK / 3
