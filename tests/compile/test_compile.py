"""torch.compile, export and make_fx of every public operator: one graph for all shapes, the values
and gradients of the reference, and the masks that eager calls draw.

Fusion: test_fusion.py. Packages: test_aot_inductor.py. Fake tensors: contracts/test_layout.py.
"""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch._dynamo.testing import CompileCounterWithBackend
from torch._inductor import config as inductor
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.checkpoint import checkpoint

from gelu_kernels.operators.types import Extent
from tests.calls import PUBLIC_CALLS, SEED, AsModule, Call, Results
from tests.cases import each
from tests.compile.comparison import check, close
from tests.everything import Everything, everything, function, sample_of


@pytest.fixture(autouse=True)
def compiled_anew() -> None:
    torch.compiler.reset()


@each(dynamic=[None, True])
def test_graphs_for_all_shapes(dynamic: bool | None, device: str) -> None:
    """One graph if sizes are declared dynamic, else a second one from the second size on. Torch
    restarts the first when a number that it took for a variable has to be a constant."""
    torch.compiler.reset()
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(everything, fullgraph=True, dynamic=dynamic, backend=counter)
    counts = []
    for rows in (6, 7, 300):
        Everything(device, rows).check(compiled)
        counts.append(counter.frame_count)
    assert [count - counts[0] for count in counts] == ([0, 0, 0] if dynamic else [0, 1, 1])


@each(call=PUBLIC_CALLS)
def test_the_graph_holds_the_operator(call: Call, device: str) -> None:
    torch.compiler.reset()
    graphs = []

    def backend(module: torch.fx.GraphModule, _: list[Tensor]) -> Callable[..., object]:
        graphs.append(module)
        return module.forward

    torch.compile(function(call), fullgraph=True, backend=backend)(*sample_of(call, device).tensors)
    op = getattr(torch.ops.gelu_kernels, call.op.name)
    assert any(node.target == op for node in graphs[0].graph.nodes)


@pytest.mark.parametrize(
    "dynamic", [pytest.param(False, marks=pytest.mark.slow), True], ids=["static", "dynamic"]
)
def test_inductor(dynamic: bool, device: str) -> None:
    compiled = torch.compile(everything, fullgraph=True, dynamic=dynamic)
    for rows in (6, 7) if dynamic else (6,):
        Everything(device, rows).check(compiled)


def checkpointed(call: Call) -> Callable[..., Tensor]:
    torch.compiler.reset()
    f = function(call)

    def block(*tensors: Tensor) -> Tensor:
        return checkpoint(f, *tensors, use_reentrant=False) * 1.0

    return torch.compile(block, fullgraph=True, backend="aot_eager")


# Without it, torch draws what a graph on a GPU recomputes from generators of the graph's own.
@inductor.patch(fallback_random=True)
@each(call=PUBLIC_CALLS)
def test_checkpoint(call: Call, device: str) -> None:
    """Recomputation in backward draws the mask that forward drew."""
    sample = sample_of(call, device)
    check(checkpointed(call), lambda *t: sample.expected(*t)[0], *sample.tensors)


def test_checkpoint_with_generators_of_the_graph(device: str) -> None:
    (call,) = [call for call in PUBLIC_CALLS if str(call) == "soi_map (soi_map)"]
    compiled, x = checkpointed(call), torch.ones(50, 40, device=device, requires_grad=True)
    masks = []
    for _ in range(3):
        y = compiled(x)
        masks.append(y != 0)
        (dx,) = torch.autograd.grad(y.sum(), x)
        assert torch.equal(dx != 0, masks[-1])
    assert not torch.equal(masks[0], masks[1])


@pytest.mark.slow
@each(compiled=[False, True])
def test_compiled_autograd(compiled: bool, device: str) -> None:
    """For other shapes, and from its cache."""
    torch.compiler.reset()
    f = torch.compile(everything, backend="aot_eager") if compiled else everything
    compiler = torch.compile(backend="aot_eager", fullgraph=True)
    with torch._dynamo.compiled_autograd._enable(compiler):
        for rows in (6, 7, 7):
            Everything(device, rows).check(f)


# Each input is a compilation.
ONE_OF_EACH_FAMILY = [*{call.op.family: call for call in PUBLIC_CALLS}.values()]


@pytest.mark.parametrize(
    "calls",
    [ONE_OF_EACH_FAMILY, pytest.param(PUBLIC_CALLS, marks=pytest.mark.slow)],
    ids=["of each family", "all"],
)
def test_compiled_autograd_of_one_input_alone(calls: list[Call], device: str) -> None:
    each(call=calls)(check_one_input_alone)(device=device)


def check_one_input_alone(call: Call, device: str) -> None:
    torch.compiler.reset()
    compiler = torch.compile(backend="aot_eager", fullgraph=True)
    for place in range(len(call.tensors)):
        sample = sample_of(call, device)
        ours = [t.clone() for t in sample.tensors]
        doubles = [t.double() for t in sample.tensors]
        ours[place].requires_grad_(), doubles[place].requires_grad_()
        torch.manual_seed(SEED)
        with torch._dynamo.compiled_autograd._enable(compiler):
            function(call)(*ours).sum().backward()
        sample.expected(*doubles)[0].sum().backward()
        torch.testing.assert_close(ours[place].grad.double(), doubles[place].grad, **close)


def test_export(device: str) -> None:
    """For any number of rows; a call draws the seeds that eager calls draw."""
    tensors = tuple(Everything(device).tensors)
    rows = torch.export.Dim("rows", min=2)
    extents = [extent for call in PUBLIC_CALLS for extent in call.tensors.values()]
    fixed = Extent.COLUMNS, Extent.NUMBER
    shapes = tuple(None if extent in fixed else {0: rows} for extent in extents)
    exported = torch.export.export(
        AsModule(everything), tensors, dynamic_shapes=(shapes,), strict=True
    )
    decomposed = exported.run_decompositions()
    targets = {node.target for node in decomposed.graph.nodes}
    for call in PUBLIC_CALLS:
        assert getattr(torch.ops.gelu_kernels, call.op.forward).default in targets
    for program in (exported, decomposed):
        for rows in (6, 11):
            Everything(device, rows).check(program.module())


@each(call=PUBLIC_CALLS, tracing=["real", "fake", "symbolic"])
def test_make_fx(call: Call, tracing: str, device: str) -> None:
    sample = sample_of(call, device)
    leaves = sample.leaves()

    def gradients(*tensors: Tensor) -> Results:
        torch.manual_seed(SEED)
        return torch.autograd.grad(function(call)(*tensors).sum(), tensors)

    traced = make_fx(gradients, tracing_mode=tracing)(*leaves)
    backward = getattr(torch.ops.gelu_kernels, call.op.backward).default
    assert backward in {node.target for node in traced.graph.nodes}
    doubles = sample.leaves(torch.float64)
    expected = torch.autograd.grad(sample.expected(*doubles)[0].sum(), doubles)
    torch.manual_seed(SEED)
    for ours, e in zip(traced(*leaves), expected, strict=True):
        torch.testing.assert_close(ours.double(), e, **close)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@each(call=PUBLIC_CALLS)
def test_training_in_cuda_graphs(call: Call, device: str) -> None:
    if device != "cuda":
        pytest.skip("CUDA graphs are of the CUDA kernels")
    torch.compiler.reset()
    compiled = torch.compile(function(call), fullgraph=True, mode="reduce-overhead")
    for _ in range(4):  # a warm-up, a capture, replays
        torch.compiler.cudagraph_mark_step_begin()
        sample = sample_of(call, device, 64, 520)
        check(compiled, lambda *t, s=sample: s.expected(*t)[0], *sample.tensors)
