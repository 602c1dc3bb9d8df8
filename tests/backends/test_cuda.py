"""What only a GPU shows: streams, graphs, devices, huge tensors, and that it has the CPU's bits."""

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import product
from threading import Timer

import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from gelu_kernels import functional
from gelu_kernels.operators.types import IN_ROW_MAJOR_ORDER
from tests import bits
from tests.calls import CORE_CALLS, DTYPES, Call, Results
from tests.devices import kernels_for
from tests.layouts import LAYOUTS
from tests.new_process import python

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]

ops = torch.ops.gelu_kernels

SPIN = 'extern "C" __global__ void spin(volatile int* released) { while (!*released); }'
LONGER_THAN_ANY_CALL = 60  # seconds, also for one of 16 processes on the GPU


@pytest.fixture(params=["cuda", "triton"], autouse=True)
def backend(request: pytest.FixtureRequest) -> Iterator[str]:
    with kernels_for(request.param):
        yield request.param


def tensors(
    call: Call,
    rows: int = 1000,
    columns: int = 520,
    device: str = "cuda",
    dtype: torch.dtype = torch.float32,
) -> list[Tensor]:
    return call.inputs((rows, columns), lambda *s: torch.randn(s, device=device).to(dtype))


def are_same(ours: Results, expected: Results) -> bool:
    return all(bits.differing(a, b) == 0 for a, b in zip(ours, expected, strict=True))


def test_large_tensors_have_the_bits_of_the_cpu() -> None:
    """The rest is in test_same_bits.py."""
    wrong = []
    for case in product(CORE_CALLS, DTYPES, (520, 1031)):
        call, dtype, columns = case
        inputs = tensors(call, 5000, columns, dtype=dtype)
        expected = call(*(t.cpu() for t in inputs))
        if not are_same(tuple(t.cpu() for t in call(*inputs)), expected):
            wrong.append(case)
    assert not wrong, named(wrong)


def named(cases: list[tuple]) -> list[str]:
    return [", ".join(map(str, case)) for case in cases]


@pytest.fixture
def deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def test_the_bits_are_those_of_every_run(deterministic: None) -> None:
    """In this mode torch fills new tensors with NaN: a place that no kernel writes is seen too."""
    wrong = []
    for call, dtype in product(CORE_CALLS, DTYPES):
        inputs = tensors(call, 5000, 1031, dtype=dtype)
        first = call(*inputs)
        has_nan = any(t.isnan().any() for t in first if t.is_floating_point())
        if has_nan or not all(are_same(call(*inputs), first) for _ in range(5)):
            wrong.append((call, dtype))
    assert not wrong, named(wrong)


# Streams and graphs


@contextmanager
def held(stream: torch.cuda.Stream) -> Iterator[Tensor]:
    """Work for the stream waits until `released` is 1: at the end of the block, or before, where
    the block itself waits for the stream and would do so for ever."""
    released = torch.zeros(1, dtype=torch.int32, pin_memory=True)
    spin = torch.cuda._compile_kernel(SPIN, "spin")
    spin(args=[released], stream=stream)
    timer = Timer(LONGER_THAN_ANY_CALL, released.fill_, [1])
    timer.start()
    try:
        yield released
    finally:
        timer.cancel()
        released.fill_(1)
        stream.synchronize()


def test_work_waits_for_the_current_stream() -> None:
    for call in CORE_CALLS:
        check_current_stream(call)


def check_current_stream(call: Call) -> None:
    inputs = tensors(call)
    expected = call(*inputs)
    place = list(call.tensors).index(call.leading)
    late = [*inputs]
    late[place] = torch.full_like(inputs[place], torch.nan)
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        call(*late)  # leaves memory in this stream's pool: an allocation might wait
        with held(stream) as released:
            late[place].copy_(inputs[place])
            results = call(*late)
            torch.cuda.default_stream().synchronize()  # work sent there instead has read NaN
            assert not released.item(), f"{call} waited for the GPU"
    assert are_same(results, expected), call


def test_work_waits_for_no_other_stream() -> None:
    for call in CORE_CALLS:
        check_other_stream(call)


def check_other_stream(call: Call) -> None:
    inputs = tensors(call)
    expected = call(*inputs)
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        call(*inputs)  # as above
        with held(torch.cuda.default_stream()) as released:
            results = call(*inputs)
            stream.synchronize()
            assert not released.item(), f"{call} waited for the default stream"
    assert are_same(results, expected), call


def captured(
    call: Callable[..., Results], inputs: list[Tensor]
) -> tuple[torch.cuda.CUDAGraph, tuple]:
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        call(*inputs)  # a kernel's first call loads it, which cannot be captured
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = call(*inputs)
    return graph, results


def test_sums_on_several_streams() -> None:
    """At once, a graph among them: no launch counts the blocks of another."""
    call = next(call for call in CORE_CALLS if call.op.name == "gate_backward_bias")
    each = [tensors(call, 4096, 4096, dtype=torch.bfloat16) for _ in range(4)]
    expected = [call(*inputs) for inputs in each]
    graph, replayed = captured(call, each[0])
    streams = [torch.cuda.Stream() for _ in each]
    torch.cuda.synchronize()
    results: list[list[Results]] = [[] for _ in each]
    for _ in range(10):
        for stream, inputs, found in zip(streams, each, results, strict=True):
            with torch.cuda.stream(stream):
                if stream is streams[0]:
                    graph.replay()
                    found.append(tuple(t.clone() for t in replayed))
                else:
                    found.append(call(*inputs))
    torch.cuda.synchronize()
    for found, right in zip(results, expected, strict=True):
        assert all(are_same(result, right) for result in found)


def training_step(dy: Tensor, x: Tensor, bias: Tensor) -> Results:
    x, bias = x.detach().requires_grad_(), bias.detach().requires_grad_()
    y = functional.bias_gelu(x, bias)
    return y.detach(), *torch.autograd.grad(y, (x, bias), dy)


def check_replays(call: Callable[..., Results], inputs: list[Tensor]) -> None:
    """A replay reads what its inputs hold by then."""
    graph, results = captured(call, inputs)
    for _ in range(2):
        for t in inputs:
            if t.is_floating_point():
                t.normal_()
        expected = call(*inputs)
        graph.replay()
        assert are_same(results, expected), call


def test_graphs() -> None:
    for call in CORE_CALLS:
        check_replays(call, tensors(call))


def test_a_training_step_in_a_graph() -> None:
    shapes = ((1000, 520), (1000, 520), (520,))
    check_replays(training_step, [torch.randn(shape, device="cuda") for shape in shapes])


SMALL_WARM_UP = """
from tests import bits
import torch
from tests.calls import CORE_CALLS

def inputs(call, *shape):
    return call.inputs(shape, lambda *s: torch.randn(s, device="cuda"))

for call in CORE_CALLS:
    large = inputs(call, 4096, 1024)
    call(*inputs(call, 4, 512))
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = call(*large)
    graph.replay()
    assert all(bits.differing(a, b) == 0 for a, b in zip(results, call(*large)))
print(len(CORE_CALLS), "captured")
"""


def test_a_large_call_is_captured_after_a_small_one(backend: str) -> None:
    """In a process of its own, where nothing is loaded yet."""
    if backend == "triton":
        pytest.skip("Triton compiles another kernel for another size, which cannot be captured")
    assert python(SMALL_WARM_UP) == f"{len(CORE_CALLS)} captured\n"


def test_each_replay_draws_a_mask() -> None:
    """The mask that an eager call draws from the same state of the generator."""
    x = torch.randn(1000, 520, device="cuda")
    graph, (y,) = captured(lambda x: (functional.soi_map(x),), [x])
    torch.cuda.manual_seed(7)
    masks = []
    for _ in range(2):
        graph.replay()
        masks.append(y != 0)
    assert not torch.equal(*masks)
    torch.cuda.manual_seed(7)
    assert all(torch.equal(functional.soi_map(x) != 0, mask) for mask in masks)


def test_every_mode_draws_the_same_masks() -> None:
    x = torch.randn(1000, 520, device="cuda")
    function = functional.soi_map
    graph, (replayed,) = captured(lambda x: (function(x),), [x])
    torch._dynamo.reset()
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")

    def recomputed(x: Tensor) -> Tensor:
        leaf = x.clone().requires_grad_()
        y = checkpoint(function, leaf, use_reentrant=False)
        return torch.autograd.grad(y.sum(), leaf)[0]

    def replay(x: Tensor) -> Tensor:
        graph.replay()
        return replayed

    def masks(draw: Callable[[Tensor], Tensor]) -> list[Tensor]:
        torch.cuda.manual_seed(7)
        return [draw(x) != 0 for _ in range(2)]

    expected = masks(function)
    for draw in (compiled, replay, recomputed):
        assert all(map(torch.equal, masks(draw), expected)), draw


STATES = [(0, 0), (1, 4), (2**63, 2**34), (2**64 - 1, 2**63 + 8)]  # a generator's seed and offset


def test_a_seed_is_that_of_torchs_kernel() -> None:
    x = torch.empty(1, device="cuda")
    ops.draw_seed(x)  # the first on a device is drawn by that kernel
    is_on_host = hasattr(torch.Stream, "is_capturing")
    assert ops.draw_seed(x).device.type == ("cpu" if is_on_host else "cuda")
    generator = torch.cuda.default_generators[torch.cuda.current_device()]

    def drawn(draw: Callable[[], Tensor], seed: int, offset: int) -> tuple[int, int]:
        generator.manual_seed(seed)
        generator.set_offset(offset)
        return int(draw()), generator.get_offset()

    for state in STATES:
        ours = drawn(lambda: ops.draw_seed(x), *state)
        expected = drawn(
            lambda: torch.empty((), dtype=torch.int64, device="cuda").random_(2**63 - 1), *state
        )
        assert ours == expected, state


def test_compiled_into_graphs() -> None:
    """The mode of torch.compile that captures graphs."""
    torch._dynamo.reset()
    compiled = torch.compile(functional.bias_gelu, fullgraph=True, mode="reduce-overhead")
    with torch.no_grad():
        for _ in range(4):  # a warm-up, a capture, replays
            x, bias = torch.randn(64, 520, device="cuda"), torch.randn(520, device="cuda")
            torch.compiler.cudagraph_mark_step_begin()
            assert bits.differing(compiled(x, bias), functional.bias_gelu(x, bias)) == 0


# Devices


def current_context() -> int | None:
    """The driver's, in which every runtime of the process works."""
    context = ctypes.c_void_p()
    assert ctypes.CDLL("libcuda.so.1").cuCtxGetCurrent(ctypes.byref(context)) == 0
    return context.value


def test_the_current_context_stays() -> None:
    for call in CORE_CALLS:
        inputs = tensors(call)
        before = current_context()
        call(*inputs)
        assert before is not None
        assert current_context() == before, call


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_another_device_than_the_current_one() -> None:
    for call in CORE_CALLS:
        inputs = tensors(call)
        expected = call(*inputs)
        elsewhere = [t.to("cuda:1") for t in inputs]
        before = current_context()
        results = call(*elsewhere)
        assert current_context() == before, call
        assert torch.cuda.current_device() == 0, call
        assert all(t.device.index == 1 for t in results), call
        assert are_same(tuple(t.to("cuda:0") for t in results), expected), call
        assert are_same(call(*inputs), expected), call


def test_an_operand_on_another_device() -> None:
    for here, there in (("cuda", "cpu"), ("cpu", "cuda")):
        bias, dy = torch.ones(3, device=there), torch.ones(2, 3, device=there)
        message = f"bias must be on the device of x, {here}"
        for grad in (False, True):
            x = torch.ones(2, 3, device=here, requires_grad=grad)
            for f in (functional.bias_gelu, ops.fused_bias_gelu):
                with pytest.raises(ValueError, match=f"fused_bias_gelu: {message}"):
                    f(x, bias)
            with pytest.raises(ValueError, match=f"gate_forward: {message}"):
                ops.gate_forward(x, bias, "normal")
        for op in (ops.gate_backward, ops.gate_backward_bias):
            with pytest.raises(ValueError, match=f"{op.__name__}: dy must be on the device of x"):
                op(dy, torch.ones(2, 3, device=here), torch.ones(3, device=here), "normal")


# Memory


def test_nothing_is_copied() -> None:
    """An expanded gradient is not materialised, and rows that lie apart are read where they lie."""
    wrong = []
    for call, layout in product(CORE_CALLS, ("contiguous", "second half", "transposed")):
        size, peak = sizes_of(call, layout)
        if not size <= peak < 1.1 * size:
            wrong.append((call, layout, size, peak))
    assert not wrong, named(wrong)


def sizes_of(call: Call, layout: str) -> tuple[int, int]:
    """Bytes of the results, and of all that a call allocates at a time."""

    def make(*shape: int) -> Tensor:
        return LAYOUTS[layout](lambda *s: torch.randn(s, device="cuda"), shape)

    given = dict(zip(call.tensors, call.inputs((4096, 256), make), strict=True))
    if "dy" in given:
        given["dy"] = torch.ones((), device="cuda").expand_as(given["dy"])
    size = sum(t.nbytes for t in call(*given.values()))
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_stats()["requested_bytes.all.current"]
    call(*given.values())
    return size, torch.cuda.memory_stats()["requested_bytes.all.peak"] - before


def test_out_of_memory() -> None:
    """An input of stride 0 takes no memory; a result would take twice what there is."""
    total = torch.cuda.get_device_properties(0).total_memory
    number = torch.zeros((), device="cuda", dtype=torch.bfloat16)
    # A mask or codes would be as large, and are made on the CPU.
    on_the_cpu = IN_ROW_MAJOR_ORDER.keys()
    calls = [call for call in CORE_CALLS if on_the_cpu.isdisjoint(call.tensors.values())]
    for call in calls:
        with pytest.raises(torch.OutOfMemoryError):
            call(*call.inputs((total // 1024, 1024), lambda *s: number.expand(s)))
    for call in calls:
        call(*tensors(call))
    torch.cuda.synchronize()


@pytest.mark.parametrize("biased", [False, True])
def test_more_than_two_to_the_31_elements(biased: bool) -> None:
    """Elements on both sides of 2^31 differ from all others. g(40) = 40 and g'(40) = 1."""
    rows, columns = 2**31 // 4096 + 5, 4096
    size = rows * columns
    torch.cuda.empty_cache()
    if torch.cuda.mem_get_info()[0] < 10 * size:
        pytest.skip("needs 20 GiB of free GPU memory")
    places = [0, 1, 2**30, 2**31 - 1, 2**31, 2**31 + 1, size - 33, size - 1]
    columns_of_places = [place % columns for place in places]

    def at_places(t: Tensor) -> list[float]:
        return [t.view(-1)[place].item() for place in places]

    def others_are(t: Tensor, number: float) -> bool:
        for place in places:
            t.view(-1)[place] = number
        return bool((t == number).all())

    x = torch.full((rows, columns), 40.0, dtype=torch.bfloat16, device="cuda")
    few = torch.linspace(-2, 2, len(places)).to(torch.bfloat16)
    for place, number in zip(places, few, strict=True):
        x.view(-1)[place] = number
    few = few.cuda()
    zero = torch.zeros(columns, dtype=torch.bfloat16, device="cuda")
    bias, bias_of_few = (zero, zero[: len(few)]) if biased else (None, None)

    y = ops.gate_forward(x, bias, "normal")
    assert at_places(y) == ops.gate_forward(few, bias_of_few, "normal").tolist()
    assert others_are(y, 40)
    dy = y.fill_(1)
    dx = ops.gate_backward(dy, x, bias, "normal")
    expected = ops.gate_backward(torch.ones_like(few), few, bias_of_few, "normal").tolist()
    assert at_places(dx) == expected
    assert others_are(dx, 1)
    if biased:
        # Zeros elsewhere: a sum of 2^19 ones would drown the few in its rounding.
        del dx
        dy.zero_()
        for place in places:
            dy.view(-1)[place] = 1
        dx, dbias = ops.gate_backward_bias(dy, x, zero, "normal")
        assert at_places(dx) == expected
        assert others_are(dx, 0)
        sums = torch.zeros(columns, dtype=torch.float64)
        for column, derivative in zip(columns_of_places, expected, strict=True):
            sums[column] += derivative
        torch.testing.assert_close(dbias.double().cpu(), sums, rtol=2**-7, atol=2**-9)
