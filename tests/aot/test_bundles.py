"""Bundles compute what CPU torch does, and give back what the exported model gives back."""

from __future__ import annotations

import copy
import gc
import weakref
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.export import export
from torch.export.passes import move_to_device_pass
from torch.utils._pytree import tree_leaves, tree_map_only

import torch_neuronx
from tests.aot.models import Cache, Convolutions, Mlp, Tied, made
from torch_neuronx.aot import BundleError
from torch_neuronx.dynamo.graph import CompilationError

D = "neuron"


def there(x):
    return tree_map_only(torch.Tensor, lambda t: t.to(D), x)


def same(got, want, strides: bool = True) -> None:
    """Equal in structure, values, dtype, shape and strides; tensors on the device."""
    assert torch.utils._pytree.tree_structure(got) == torch.utils._pytree.tree_structure(want)
    for a, b in zip(tree_leaves(got), tree_leaves(want), strict=True):
        if isinstance(b, torch.Tensor):
            assert a.device.type == D
            assert not strides or a.stride() == b.stride()
            torch.testing.assert_close(a.cpu(), b)
        else:
            assert type(a) is type(b) and a == b


def shipped(model: nn.Module, args: tuple, path: Path, kwargs: dict | None = None, **options):
    """The loaded bundle of a copy of the model on neuron."""
    moved = copy.deepcopy(model).to(D)
    torch_neuronx.aot_compile(export(moved, there(args), there(kwargs or {})), path, **options)
    return torch_neuronx.load(path)


def test_inputs_named_like_builtins(tmp_path: Path) -> None:
    """Copying such a graph renames them; Linear and Sequential call theirs `input`."""
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(3, 2), nn.ReLU()), torch.randn(1, 3)
    torch_neuronx.aot_compile(export(model, (x,)), tmp_path / "b.neff")
    with torch.no_grad():
        same(torch_neuronx.load(tmp_path / "b.neff")(x.to(D)), model(x))


def test_keywords_and_nested_results(tmp_path: Path) -> None:
    model = made(Mlp)
    args, kwargs = Mlp.inputs()
    loaded = shipped(model, args, tmp_path / "m.neff", kwargs)
    args, kwargs = Mlp.inputs()
    same(loaded(*there(args), **there(kwargs)), model(*args, **kwargs))
    x = args[0].to(D)
    assert loaded(x=x, **there(kwargs))["more"][2] is x


def test_a_cpu_program_is_moved(tmp_path: Path) -> None:
    model = made(Mlp)
    args, kwargs = Mlp.inputs()
    program = export(model, args, kwargs)
    torch_neuronx.aot_compile(program, tmp_path / "a.neff")
    assert all(t.device.type == "cpu" for t in program.state_dict.values())
    torch_neuronx.aot_compile(move_to_device_pass(program, D), tmp_path / "b.neff")
    for name in ("a.neff", "b.neff"):
        same(torch_neuronx.load(tmp_path / name)(*there(args), **there(kwargs)), model(*args, **kwargs))


def test_a_program_goes_through_torch_export_save(tmp_path: Path) -> None:
    model = made(Mlp)
    args, kwargs = Mlp.inputs()
    torch.export.save(export(copy.deepcopy(model).to(D), there(args), there(kwargs)), tmp_path / "p.pt2")
    program = torch.export.load(tmp_path / "p.pt2")
    assert {t.device.type for t in program.state_dict.values()} == {D}
    same(program.module()(*there(args), **there(kwargs)), model(*args, **kwargs))
    torch_neuronx.aot_compile(program, tmp_path / "m.neff")
    same(torch_neuronx.load(tmp_path / "m.neff")(*there(args), **there(kwargs)), model(*args, **kwargs))


@pytest.mark.parametrize("training", [False, True])
def test_buffers_keep_their_state(tmp_path: Path, training: bool) -> None:
    model, x = made(Convolutions).train(training), torch.randn(2, 3, 8, 8)
    loaded = shipped(model, (x,), tmp_path / "m.neff")
    for _ in range(3):
        same(loaded(x.to(D)), model(x).detach())
    assert loaded.state_dict()["calls"].item() == 3
    torch.testing.assert_close(loaded.state_dict()["norm.running_var"].cpu(), model.norm.running_var)
    assert torch_neuronx.load(tmp_path / "m.neff").state_dict()["calls"].item() == 0
    loaded.state_dict()["calls"].zero_()
    model.calls.zero_()
    same(loaded(x.to(D)), model(x))


def test_a_cache_is_written_in_place(tmp_path: Path) -> None:
    model = made(Cache)
    loaded = shipped(model, (torch.randn(1, 2, 4), torch.tensor([0, 1])), tmp_path / "m.neff")
    kept = loaded.state_dict()["kept"]
    memory = kept.data_ptr()
    for at in ([0, 1], [2, 3], [1, 15]):
        x, where = torch.randn(1, 2, 4), torch.tensor(at)
        same(loaded(x.to(D), where.to(D)), model(x, where))
    torch.testing.assert_close(kept.cpu(), model.kept)
    assert kept.data_ptr() == memory


def test_tied_weights_stay_tied(tmp_path: Path) -> None:
    model = made(Tied)
    ids = torch.tensor([[1, 2, 3]])
    loaded = shipped(model, (ids,), tmp_path / "m.neff")
    same(loaded(ids.to(D)), model(ids))
    state = loaded.state_dict()
    assert state["embed.weight"] is state["head.weight"]


def test_weights_by_reference(tmp_path: Path) -> None:
    model = made(Mlp)
    args, kwargs = Mlp.inputs()
    loaded = shipped(model, args, tmp_path / "m.neff", kwargs, weights="reference")
    same(loaded(*there(args), **there(kwargs)), model(*args, **kwargs))
    stored = tmp_path / "m.safetensors"
    shipped(model, args, tmp_path / "n.neff", kwargs, weights="reference", weights_path=stored)
    with torch.no_grad():
        model.first.bias.add_(1)
    with pytest.raises(BundleError, match=r"m.safetensors is there already, and its first.bias differs"):
        shipped(model, args, tmp_path / "n.neff", kwargs, weights="reference", weights_path=stored)
    moved = tmp_path / "moved.safetensors"
    stored.rename(moved)
    with pytest.raises(BundleError, match=r"cannot be read .* pass weights_path"):
        torch_neuronx.load(tmp_path / "m.neff")
    torch_neuronx.load(tmp_path / "m.neff", weights_path=moved)
    moved.write_bytes(moved.read_bytes()[:-1] + b"x")
    with pytest.raises(BundleError, match="these are other weights"):
        torch_neuronx.load(tmp_path / "m.neff", weights_path=moved)


def test_safetensors_reads_the_weights(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    model = made(Mlp)
    args, kwargs = Mlp.inputs()
    save_file(model.state_dict(), tmp_path / "w.safetensors")
    shipped(model, args, tmp_path / "m.neff", kwargs, weights="reference", weights_path=tmp_path / "w.safetensors")
    shipped(model, args, tmp_path / "n.neff", kwargs, weights="reference")
    for name, tensor in load_file(tmp_path / "n.safetensors").items():
        assert torch.equal(tensor, model.state_dict()[name])


def test_every_dtype_of_weights(tmp_path: Path) -> None:
    dtypes = [
        *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16),
        *(torch.float32, torch.float64, torch.complex64, torch.complex128, torch.uint16, torch.float8_e4m3fn),
        *(torch.float8_e5m2, torch.float8_e4m3fnuz, torch.complex32),
    ]

    class Holder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for i, dtype in enumerate(dtypes):
                self.register_buffer(f"b{i}", torch.tensor([0, 1, 1, 0]).to(dtype))
            self.register_buffer("none", torch.zeros(0, 3))
            self.register_buffer("turned", torch.randn(3, 4).t())
            self.register_buffer("window", torch.randn(6, 5)[1:4, ::2])

        def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
            named = [b.clone() for b in self.buffers()]
            return [*named, x + self.none.sum()]

    model, x = Holder(), torch.randn(2)
    loaded = shipped(model, (x,), tmp_path / "m.neff")
    for a, b in zip(loaded(x.to(D)), model(x), strict=True):
        assert a.dtype == b.dtype and a.stride() == b.stride()
        a, b = (t.contiguous().reshape(-1).view(torch.uint8).tolist() for t in (a.cpu(), b))
        assert a == b
    assert torch.equal(loaded.state_dict()["turned"].cpu(), model.turned)


def test_inputs_that_lie_otherwise(tmp_path: Path) -> None:
    """Views, shared and unwritten memory, gradients asked for. Results have the strides they were exported with."""
    f = lambda x, y: (x * 2 + y, x @ y.t())  # noqa: E731
    a, b, wide = torch.randn(3, 4), torch.randn(3, 4), torch.randn(6, 8)
    loaded = shipped(_Function(f), (a, b), tmp_path / "m.neff")
    base = wide.to(D)
    same(loaded(base[1:4, ::2], base[2:5, 4:]), f(wide[1:4, ::2], wide[2:5, 4:]))
    same(loaded(a.to(D).t().contiguous().t(), b.to(D)), f(a, b))
    same(loaded(a[:1].to(D).expand(3, 4), b.to(D)), f(a[:1].expand(3, 4), b))
    same(loaded(a.to(D).requires_grad_(), b.to(D)), f(a, b))
    same(loaded(a.to(D).view(torch.int32).view(torch.float32), b.to(D)), f(a, b))
    same(loaded(wide.view(torch.int32).to(D)[:3, :4].contiguous().view(torch.float32), b.to(D)), f(wide[:3, :4], b))
    z = a.to(D)
    same(loaded(z, z), f(a, a))
    assert loaded(torch.empty(3, 4, device=D), z)[0].shape == (3, 4)


class _Function(nn.Module):
    def __init__(self, f) -> None:
        super().__init__()
        self.f = f

    def forward(self, *args):
        return self.f(*args)


def test_an_input_that_is_written(tmp_path: Path) -> None:
    class Adds(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            x.add_(y)
            return x * 2

    x, y = torch.randn(3, 4), torch.randn(3, 4)
    loaded = shipped(Adds(), (x, y), tmp_path / "m.neff")
    for view in (lambda t: t, lambda t: t.t().contiguous().t()):
        mine, base = view(x.clone()), view(x.to(D))
        same(loaded(base, y.to(D)), Adds()(mine, y), strides=False)
        torch.testing.assert_close(base.cpu(), mine)
    whole = torch.zeros(5, 4, device=D)
    loaded(whole[1:4], y.to(D))
    torch.testing.assert_close(whole.cpu(), F.pad(y, (0, 0, 1, 1)))


def test_inputs_that_belong_on_the_cpu(tmp_path: Path) -> None:
    """As exported: a number that varies, a table, and a result asked for on the CPU."""

    class Mixed(nn.Module):
        def forward(self, x: torch.Tensor, scale: torch.Tensor, table: torch.Tensor):
            return x * scale, (x + table.to(x.device)).cpu()

    x, table = torch.randn(3, 4), torch.randn(4)
    program = export(Mixed(), (x.to(D), torch.tensor(2.0), table))
    torch_neuronx.aot_compile(program, tmp_path / "m.neff")
    loaded = torch_neuronx.load(tmp_path / "m.neff")
    for scale in (torch.tensor(2.0), torch.tensor(-3.5)):
        on_device, on_host = loaded(x.to(D), scale, table)
        torch.testing.assert_close(on_device.cpu(), x * scale)
        torch.testing.assert_close(on_host, x + table)
        assert (on_device.device.type, on_host.device.type) == (D, "cpu")
    with pytest.raises(ValueError, match="scale must be on cpu, not neuron:0"):
        loaded(x.to(D), torch.tensor(2.0).to(D), table)


def test_a_loaded_program_goes_away(tmp_path: Path) -> None:
    loaded = shipped(made(Tied), (torch.tensor([[1]]),), tmp_path / "m.neff")
    with torch.inference_mode():
        loaded(torch.tensor([[1]]).to(D))
    seen = weakref.ref(loaded.state_dict()["embed.weight"])
    del loaded
    gc.collect()
    assert seen() is None


def test_random_numbers_come_from_the_device_generator(tmp_path: Path) -> None:
    class Drops(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return F.dropout(x, 0.5, training=True) + torch.rand_like(x)

    x = torch.randn(8, 8)
    loaded = shipped(Drops(), (x,), tmp_path / "m.neff")
    torch.manual_seed(3)
    first, second = loaded(x.to(D)), loaded(x.to(D))
    assert not torch.equal(first, second)
    torch.manual_seed(3)
    eager = Drops()(x.to(D))
    torch.testing.assert_close(first.cpu(), eager.cpu())
    torch.testing.assert_close(second.cpu(), Drops()(x.to(D)).cpu())


def test_control_flow(tmp_path: Path) -> None:
    class Branches(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = torch.cond(x.sum() > 0, lambda t: t.sin(), lambda t: t.cos(), (x,))
            return torch._higher_order_ops.while_loop(
                lambda i, t: i < 3, lambda i, t: (i + 1, t * 2), (torch.tensor(0), y)
            )[1]

    model = Branches()
    program = export(model, (torch.randn(4),))
    torch_neuronx.aot_compile(program, tmp_path / "m.neff")
    loaded = torch_neuronx.load(tmp_path / "m.neff")
    for x in (torch.ones(4), -torch.ones(4)):
        same(loaded(x.to(D)), model(x))


def test_results_that_are_views(tmp_path: Path) -> None:
    model = _Function(lambda x: (x.view(2, 6)[:, ::2], (x + 1).split(2), x.t(), x[:0].sum()))
    x = torch.randn(4, 3)
    loaded = shipped(model, (x,), tmp_path / "m.neff")
    same(loaded(x.to(D)), model(x))


def test_deferred_checks(tmp_path: Path) -> None:
    model = _Function(lambda table, i: table[i])
    loaded = shipped(model, (torch.randn(4, 2), torch.tensor([0, 3])), tmp_path / "m.neff")
    with pytest.raises(IndexError, match="out of bounds"):
        loaded(torch.randn(4, 2, device=D), torch.tensor([0, 4]).to(D)).cpu()


def test_what_cannot_be_shipped(tmp_path: Path) -> None:
    from collections import defaultdict

    with pytest.raises(CompilationError, match=r"cannot be compiled: node index = .*data-dependent size"):
        shipped(_Function(lambda x: x[x > 0]), (torch.randn(4),), tmp_path / "m.neff")
    with pytest.raises(BundleError, match="defaultdict is not shipped"):
        shipped(_Function(lambda x: defaultdict(list, {"a": x + 1})), (torch.randn(4),), tmp_path / "m.neff")
    with pytest.raises(BundleError, match="a constant that is not JSON"):
        shipped(_Function(lambda x, n: x + 1), (torch.randn(4), float("inf")), tmp_path / "m.neff")
    with pytest.raises(ValueError, match='"inside" or "reference"'):
        shipped(_Function(lambda x: x + 1), (torch.randn(4),), tmp_path / "m.neff", weights="outside")
    assert not list(tmp_path.iterdir())
