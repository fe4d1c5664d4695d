"""Whole graphs: values, strides, gradients, aliasing and mutation equal to eager CPU torch."""

from __future__ import annotations

import copy
import gc
import weakref
from collections.abc import Callable

import pytest
import torch
from torch import nn

from torch_neuronx.dynamo import metrics
from torch_neuronx.dynamo.graph import CompiledGraph

D = "neuron"


@pytest.fixture(autouse=True)
def _fresh():
    torch._dynamo.reset()
    metrics.clear()
    torch.manual_seed(0)


def compiled(f: Callable, **options) -> Callable:
    return torch.compile(f, backend="neuron", fullgraph=True, **options)


def check(f: Callable, *args: torch.Tensor) -> None:
    """One graph; results equal in value, dtype, shape and strides."""
    there = compiled(f)(*(a.to(D) for a in args))
    here = f(*args)
    for a, b in zip(torch.utils._pytree.tree_leaves(there), torch.utils._pytree.tree_leaves(here), strict=True):
        assert a.device.type == D
        assert a.stride() == b.stride()
        torch.testing.assert_close(a.cpu(), b)


X, Y = torch.randn(4, 6), torch.randn(6, 5)

FUNCTIONS: dict[str, tuple[Callable, tuple[torch.Tensor, ...]]] = {
    "matmul and sums": (lambda x, y: (x @ y).relu().sum(-1) + x[:, 0], (X, Y)),
    "a transposed result": (lambda x, y: (x @ y).t(), (X, Y)),
    "a view of an input": (lambda x: x.view(2, 12)[:, ::3], (X,)),
    "several views of one result": (lambda x: (x + 1).split(2, dim=1), (X,)),
    "an expanded result": (lambda x: (x[:, :1] * 2).expand(4, 3), (X,)),
    "an input as it is": (lambda x: (x, x + 1), (X,)),
    "a channels-last convolution": (
        lambda x, w: torch.nn.functional.conv2d(x, w, padding=1),
        (torch.randn(2, 3, 8, 8).contiguous(memory_format=torch.channels_last), torch.randn(4, 3, 3, 3)),
    ),
    "as_strided": (lambda x: x.as_strided((3, 2), (2, 5), 1) * 2, (X,)),
    "as_strided of a transposed input": (lambda x: x.t().as_strided((3, 2), (2, 5), 1) * 2, (X,)),
    "complex": (lambda x: torch.view_as_real(torch.fft.fft(x).conj().resolve_conj()), (X,)),
    "indices": (lambda x, i: x[i, i % 2], (X, torch.tensor([0, 3, 1]))),
    "an empty tensor": (lambda x: x[:0].sum(0), (X,)),
    "a number from nowhere": (lambda x: x * torch.arange(6, device=x.device) + torch.tensor(2.0), (X,)),
    "no tensor goes in": (lambda: torch.ones(3, device=D).cumsum(0), ()),
}


@pytest.mark.parametrize("name", [n for n in FUNCTIONS if n != "no tensor goes in"])
def test_equals_eager(name: str) -> None:
    f, args = FUNCTIONS[name]
    check(f, *args)


def test_no_tensor_goes_in() -> None:
    out = compiled(FUNCTIONS["no tensor goes in"][0])()
    assert out.device.type == D
    assert out.tolist() == [1, 2, 3]


def test_views_of_inputs_are_not_copied() -> None:
    x = torch.randn(4, 6, device=D)
    y = compiled(lambda x: (x.t(), x + 1))(x)[0]
    assert y._typed_storage()._cdata == x._typed_storage()._cdata
    x.zero_()
    assert not y.any()


def test_a_model_and_its_gradients() -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4), nn.Softmax(-1))
    there = copy.deepcopy(model).to(D)
    x = torch.randn(3, 8)
    compiled(there)(x.to(D)).square().sum().backward()
    model(x).square().sum().backward()
    for p, q in zip(there.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(p.grad.cpu(), q.grad)
    kinds = [m["kind"] for m in metrics.get_dynamo_metrics()]
    assert kinds == ["forward", "backward"]


def test_saved_weights_are_not_copied() -> None:
    """What the forward graph saves of a parameter is a view of it."""
    model = nn.Linear(256, 256).to(D)
    call = compiled(model)
    x = torch.randn(4, 256, device=D)
    call(x).sum().backward()
    torch.neuron.synchronize()
    model.zero_grad()
    before = torch.neuron.memory_allocated()
    out = call(x)
    torch.neuron.synchronize()
    kept = torch.neuron.memory_allocated() - before
    assert kept < 64 * 1024, f"{kept} bytes for an output of {out.numel() * 4}"


def test_inputs_are_mutated_in_place() -> None:
    x = torch.randn(4, 6)
    there = x.to(D)
    storage = there._typed_storage()._cdata

    def f(x: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        x[:, 2:4].mul_(3)
        return x.sum(0)

    out = compiled(f)(there)
    torch.testing.assert_close(out.cpu(), f(x))
    torch.testing.assert_close(there.cpu(), x)
    assert there._typed_storage()._cdata == storage
    assert there._version > 0


def test_a_mutated_view_of_an_input() -> None:
    base = torch.randn(4, 6)
    there = base.to(D)

    def f(x: torch.Tensor) -> torch.Tensor:
        return x.mul_(2) + 1

    out = compiled(f)(there[1:3, ::2])
    torch.testing.assert_close(out.cpu(), f(base[1:3, ::2]))
    torch.testing.assert_close(there.cpu(), base)


def test_running_statistics() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
    there = copy.deepcopy(model).to(D)
    call = compiled(there)
    for _ in range(3):
        x = torch.randn(2, 3, 8, 8)
        torch.testing.assert_close(call(x.to(D)).cpu(), model(x), rtol=1e-4, atol=1e-5)
    for a, b in zip(there.buffers(), model.buffers(), strict=True):
        torch.testing.assert_close(a.cpu(), b)


def test_a_cache_is_updated_in_place() -> None:
    cache = torch.zeros(2, 8, 3)
    there = cache.to(D)

    def f(cache: torch.Tensor, new: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        cache.index_copy_(1, at, new)
        return cache.sum(1)

    call = compiled(f)
    for i in range(4):
        new, at = torch.randn(2, 1, 3), torch.tensor([i])
        torch.testing.assert_close(call(there, new.to(D), at.to(D)).cpu(), f(cache, new, at))
    torch.testing.assert_close(there.cpu(), cache)
    assert len(metrics.get_dynamo_metrics()) == 1


def test_random_numbers_are_eagers() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.dropout(x, 0.5) + torch.rand_like(x) * torch.randn(6, device=x.device)

    x = torch.randn(4, 6, device=D)
    torch.manual_seed(3)
    eager = f(x), torch.rand(2, device=D)
    torch.manual_seed(3)
    ours = compiled(f)(x), torch.rand(2, device=D)
    for a, b in zip(eager, ours, strict=True):
        torch.testing.assert_close(a, b)


def test_random_numbers_differ_from_call_to_call() -> None:
    call = compiled(lambda x: torch.rand_like(x))
    x = torch.zeros(64, device=D)
    assert not torch.equal(call(x), call(x))


def test_an_optimizer_step() -> None:
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2))
    there = copy.deepcopy(model).to(D)
    pair = [(m, torch.optim.AdamW(m.parameters(), lr=0.01, foreach=True)) for m in (model, there)]
    step = torch.compile(pair[1][1].step, backend="neuron")
    for _ in range(4):
        x = torch.randn(5, 6)
        for (m, optimizer), go, d in zip(pair, (pair[0][1].step, step), ("cpu", D), strict=True):
            optimizer.zero_grad()
            m(x.to(d)).square().mean().backward()
            go()
    for p, q in zip(there.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(p.cpu(), q, rtol=1e-4, atol=1e-5)


def test_autocast() -> None:
    model = nn.Linear(16, 16)
    there = copy.deepcopy(model).to(D)
    x = torch.randn(4, 16)
    with torch.autocast(D, dtype=torch.bfloat16):
        out = compiled(there)(x.to(D))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        want = model(x)
    assert out.dtype is torch.bfloat16
    torch.testing.assert_close(out.cpu(), want, rtol=2e-2, atol=2e-2)


def test_checkpointing_with_dropout() -> None:
    from torch.utils.checkpoint import checkpoint

    layer = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.Tanh()).to(D)
    x = torch.randn(4, 8, device=D, requires_grad=True)

    def f(x: torch.Tensor) -> torch.Tensor:
        return checkpoint(layer, x, use_reentrant=False)

    torch.manual_seed(1)
    f(x).sum().backward()
    want = [p.grad.clone() for p in (x, *layer.parameters())]
    x.grad = None
    layer.zero_grad()
    torch.manual_seed(1)
    compiled(f)(x).sum().backward()
    for p, g in zip((x, *layer.parameters()), want, strict=True):
        torch.testing.assert_close(p.grad, g)


def test_a_graph_break() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        print("between")
        if y.sum() > 0:
            return y + 1
        return y - 1

    call = torch.compile(f, backend="neuron")
    for x in (X.abs(), -X.abs()):
        torch.testing.assert_close(call(x.to(D)).cpu(), f(x))


def test_the_default_backend_is_chosen_by_the_device() -> None:
    call = torch.compile(lambda x: x.sin() + 1, fullgraph=True)
    torch.testing.assert_close(call(X.to(D)).cpu(), X.sin() + 1)
    assert [m["kind"] for m in metrics.get_dynamo_metrics()] == ["inference"]


def test_a_module_compiles_itself() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(6, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(x).relu()

    model = Model()
    there = copy.deepcopy(model).to(D)
    there.compile()
    torch.testing.assert_close(there(X.to(D)).cpu(), model(X))
    assert [m["kind"] for m in metrics.get_dynamo_metrics()] == ["forward", "backward"]


def test_a_mutated_cpu_input_is_written_back() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        y.add_(1)
        return x.cpu() + y

    x, y = torch.ones(3), torch.ones(3)
    out = torch.compile(f, backend="neuron")(x.to(D), y)
    assert out.device.type == "cpu"
    assert out.tolist() == [3, 3, 3]
    assert y.tolist() == [2, 2, 2]


def test_cpu_inputs_may_be_forbidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_NEURONX_DYNAMO_DISABLE_CPU_AUTOCOPY", "1")
    with pytest.raises(RuntimeError, match=r"input \d+ of graph_\d+_inference is a CPU tensor of shape"):
        compiled(lambda x, y: x + y.to(D))(X.to(D), X)


def test_numbers_that_change() -> None:
    call = torch.compile(lambda x, s, n: x * s + n, backend="neuron", dynamic=True)
    for s, n in ((0.5, 2), (0.25, 3), (1.5, 7)):
        torch.testing.assert_close(call(X.to(D), s, n).cpu(), X * s + n)


def test_a_second_process_compiles_nothing(tmp_path) -> None:
    import os
    import subprocess
    import sys

    script = tmp_path / "run.py"
    script.write_text(
        "import torch, torch_neuronx\n"
        "m = torch.nn.Sequential(torch.nn.Linear(7, 3), torch.nn.Tanh()).to('neuron')\n"
        "torch.compile(m, backend='neuron')(torch.ones(2, 7, device='neuron')).sum().backward()\n"
        "r = torch_neuronx.get_dynamo_metrics()\n"
        "print(sum(x['executables'] for x in r), sum(x['cache_hits'] for x in r))\n"
    )
    environment = {**os.environ, "TORCH_NEURONX_NEFF_CACHE_DIR": str(tmp_path / "cache")}
    said = [
        subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    ]
    assert said == ["2 0\n", "2 2\n"]


def test_artifacts_are_kept_on_request(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_NEURONX_PRESERVE_COMPILATION_ARTIFACTS", "1")
    monkeypatch.setenv("TORCH_NEURONX_DEBUG_DIR", str(tmp_path))
    monkeypatch.setenv("RANK", "3")
    compiled(lambda x: x.cos() * 7.25, options={"model_name": "kept"})(torch.randn(2, 3, device=D))
    (graph,) = (tmp_path / "fx_graphs" / "proc_3").iterdir()
    assert "cos" in graph.read_text()
    assert graph.name.startswith("kept_")
    programs = tmp_path / "stablehlo" / "proc_3"  # none if the executable was on disk
    assert not programs.exists() or "stablehlo.cosine" in next(programs.iterdir()).read_text()


def test_a_graph_that_cannot_be_lowered_says_so_and_leaves_nothing_behind(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("TORCH_NEURONX_DEBUG_DIR", str(tmp_path))

    @torch.library.custom_op("neuron_test::opaque", mutates_args=())
    def opaque(x: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(x.cpu().numpy() + 1).to(x.device)

    @opaque.register_fake
    def _(x: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(x)

    x = torch.randn(2, 3, device=D)
    with pytest.raises(RuntimeError, match=r"opaque.*cannot be lowered[\s\S]*The graph is in .*fallback_execution"):
        compiled(lambda x: opaque(x) * 2)(x)
    torch._dynamo.reset()
    allowed = compiled(lambda x: opaque(x) * 2, options={"fallback_execution": True})
    torch.testing.assert_close(allowed(x), (x + 1) * 2)
    torch.testing.assert_close(allowed(x), (x + 1) * 2)
    assert "cannot be lowered" in metrics.get_dynamo_metrics()[-1]["fallback"]
    torch._dynamo.reset()
    torch.testing.assert_close(compiled(lambda x: x * 2)(x), x * 2)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"mode": "fastest"}, "no mode 'fastest'. Valid modes: default, reduce-overhead, max-autotune"),
        (
            {"options": {"speed": 1}},
            "no option 'speed'. Valid options: buckets, exact_after, fallback_execution, frontend, model_name",
        ),
        ({"options": {"model_name": 1}}, "takes a str"),
        ({"options": {"buckets": [0]}}, 'takes "exact" or a list of sizes'),
    ],
)
def test_options_that_are_not_valid(options: dict, said: str) -> None:
    with pytest.raises(Exception, match=said.replace("[", r"\[")):
        torch.compile(lambda x: x + 1, backend="neuron", **options)(torch.zeros(2, device=D))


def test_a_graph_that_is_let_go_frees_its_memory() -> None:
    made: list[weakref.ref[CompiledGraph]] = []
    before = CompiledGraph.__init__

    def remember(self: CompiledGraph, *args: object) -> None:
        before(self, *args)
        made.append(weakref.ref(self))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CompiledGraph, "__init__", remember)
        call = torch.compile(lambda x: x.sin() * 3, backend="neuron", dynamic=True)
        call(torch.ones(5, device="neuron"))
    del call
    torch._dynamo.reset()
    gc.collect()
    assert made
    assert all(graph() is None for graph in made)


@pytest.mark.parametrize(
    ("f", "x"),
    [
        (lambda x: torch.nn.functional.avg_pool1d(x, 3), torch.arange(54).reshape(2, 3, 9)),
        (lambda x: x**2.5, torch.rand(7).bfloat16()),
    ],
)
def test_constants_that_torch_converts(f: Callable, x: torch.Tensor) -> None:
    torch.testing.assert_close(compiled(f)(x.to(D)).cpu(), f(x))
