"""Our modules under hooks and torchinfo; replaced models: tests/replace/equivalence."""

import pytest
import torch
from torch import Tensor

from tests.calls import SEED
from tests.pytorch.module_cases import SHAPE, Case, every_case


def called(module: torch.nn.Module, x: Tensor) -> Tensor:
    torch.manual_seed(SEED)
    return module(x)


@every_case
def test_hooks_see_every_result(case: Case) -> None:
    """Hooks before, after and in backward run for every submodule, and change nothing."""
    module, x = case(), torch.randn(SHAPE, requires_grad=True)
    y = called(module, x)
    seen, differentiated = {}, set()
    for name, each in module.named_modules():
        each.register_forward_pre_hook(lambda m, inputs: None)
        each.register_forward_hook(lambda m, inputs, result, name=name: seen.update({name: result}))
        each.register_full_backward_hook(lambda m, dx, dy, name=name: differentiated.add(name))
    hooked = called(module, x)
    torch.testing.assert_close(hooked, y)
    hooked.sum().backward()
    assert seen.keys() == differentiated == dict(module.named_modules()).keys()
    for name, layer in module.named_modules():
        width = layer.out_features if hasattr(layer, "out_features") else y.shape[-1]
        assert seen[name].shape == (SHAPE[0], width)


@every_case
def test_torchinfo(case: Case) -> None:
    torchinfo = pytest.importorskip("torchinfo", reason="needs torchinfo")
    module = case()
    summary = torchinfo.summary(module, input_size=SHAPE, verbose=0)
    layers = [layer.module for layer in summary.summary_list]
    assert layers == list(module.modules())
    y = called(module, torch.randn(SHAPE))
    assert summary.summary_list[0].output_size == list(y.shape)
    for layer, row in zip(layers[1:], summary.summary_list[1:], strict=True):
        assert row.output_size == [SHAPE[0], layer.out_features]
    assert summary.total_params == sum(p.numel() for p in module.parameters())
