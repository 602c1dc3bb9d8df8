"""replace_activations together with PEFT, torchao, torchinfo, hooks on all modules, a second call,
and the garbage collector."""

import gc
import itertools
import weakref

import pytest
import torch
from torch import Tensor
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_full_backward_hook,
)
from torch.overrides import TorchFunctionMode

from tests.replace.equivalence.outcomes import (
    MODELS,
    MODES,
    Mlp,
    assert_same,
    difference,
    each_model,
    inputs,
    outcome,
    replace,
    two,
)
from tests.replace.replacements import Operators

# Adapters and quantisation


@each_model(when=["before", "after", "then restored"])
def test_peft(name, mode, when):
    peft = pytest.importorskip("peft", reason="needs peft")
    layers = MODELS[name][1]
    alone = [] if when == "then restored" else [[layer] for layer in layers]
    for targets in (layers, *alone):
        reference, model = two(name)
        if when != "before":
            replacement = replace(model, mode)
        adapted = []
        for base in (reference, model):
            torch.default_generator.manual_seed(2)
            config = peft.LoraConfig(target_modules=targets, r=2, init_lora_weights=False)
            adapted.append(peft.get_peft_model(base, config))
        if when == "before":
            replacement = replace(adapted[1], mode)
        elif when == "then restored":
            replacement.restore()
        assert_same(adapted[1], adapted[0])
        trained = outcome(adapted[0], inputs(), False)
        merged = [model.merge_and_unload() for model in adapted]
        assert not difference(outcome(merged[1], inputs(), False), trained)
        assert_same(merged[1], merged[0])


@each_model(when=["before", "after"])
def test_int8_weights(name, mode, when):
    quantization = pytest.importorskip("torchao.quantization", reason="needs torchao")
    reference, model = (model.float() for model in two(name))
    x = inputs().float()
    if when == "after":
        replace(model, mode)
    for each in (reference, model):
        quantization.quantize_(each, quantization.Int8WeightOnlyConfig())
    if when == "before":
        replace(model, mode)
    for training in (False, True):
        expected = outcome(reference, x, training)
        assert not any(isinstance(value, type) for value in expected)
        assert not difference(outcome(model, x, training), expected, 1e-5)


# Modes


class Doubled(TorchFunctionMode):
    """Doubles the results of F.linear, F.gelu and F.silu."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        y = function(*args, **(kwargs or {}))
        functions = (torch.nn.functional.linear, torch.nn.functional.gelu, torch.nn.functional.silu)
        return 2 * y if function in functions else y


@each_model()
def test_function_modes(name, mode):
    reference, model = two(name)
    plain = outcome(reference, inputs(), False)
    replace(model, mode)
    with Doubled():
        assert difference(outcome(reference, inputs(), False), plain)
        assert_same(model, reference)
    with torch.device("cpu"), Operators() as operators:  # a mode of torch's own
        assert not difference(outcome(model, inputs(), False), plain)
    assert operators.ours


# What hooks and summaries see of a model


def seen_by(model, register):
    """The outcome of a call, and the tensors that hooks see, by module."""
    seen = {}

    def hook(module, taken, given):
        for index, tensor in enumerate((*taken, *(given if type(given) is tuple else (given,)))):
            assert isinstance(tensor, Tensor)
            seen[names[module], index] = tensor.detach().clone()

    names = {module: name for name, module in model.named_modules()}
    handles = register(model, hook)
    try:
        result = outcome(model, inputs(), True)
    finally:
        for handle in handles:
            handle.remove()
    return result, seen


SEEN_BY = {
    "forward": lambda m, hook: [each.register_forward_hook(hook) for each in m.modules()],
    "global forward": lambda m, hook: [register_module_forward_hook(hook)],
    "backward": lambda m, hook: [each.register_full_backward_hook(hook) for each in m.modules()],
    "global backward": lambda m, hook: [register_module_full_backward_hook(hook)],
}


@each_model(hooks=SEEN_BY)
def test_hooks_see_the_same_tensors(hooks, name, mode):
    reference, model = two(name)
    expected, of_reference = seen_by(reference, SEEN_BY[hooks])
    replace(model, mode)
    found, of_model = seen_by(model, SEEN_BY[hooks])
    assert not difference(found, expected)
    assert of_model.keys() == of_reference.keys()
    assert not difference([*of_model.values()], [of_reference[key] for key in of_model])
    assert_same(model, reference)  # once more without hooks


@each_model()
def test_torchinfo(name, mode):
    torchinfo = pytest.importorskip("torchinfo", reason="needs torchinfo")
    summaries = []
    for model in two(name):
        if summaries:
            replace(model, mode)
        summary = torchinfo.summary(model.float(), input_size=(4, 6), verbose=0)
        layers = [(layer.var_name, layer.output_size) for layer in summary.summary_list]
        summaries.append((summary.total_params, summary.total_mult_adds, layers))
    assert summaries[0] == summaries[1]


def local_class():
    class Local(Mlp):
        def forward(self, x):
            return self.fc2(self.act(self.fc1(x)))

    return Local()


def traced():
    return torch.fx.symbolic_trace(Mlp())


def replaced_and_dropped(make, restored, mode):
    """Weak references to a model, its class and a layer."""
    model = make()
    model(torch.randn(4, 6))
    references = [weakref.ref(model), weakref.ref(type(model)), weakref.ref(model.fc1)]
    replacement = replace(model, mode)
    model(torch.randn(4, 6))
    if restored:
        replacement.restore()
    return references


def test_classes_are_freed():
    cases = [*itertools.product([local_class, traced], [False, True], MODES)]
    references = [replaced_and_dropped(*case) for case in cases]
    gc.collect()
    assert not [
        case for case, refs in zip(cases, references, strict=True) if any(r() for r in refs)
    ]
