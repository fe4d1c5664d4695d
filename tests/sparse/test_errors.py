"""What sparse tensors refuse: in words, and never with a crash."""

from __future__ import annotations

import pytest
import torch

from tests.sparse.compare import coo
from torch_neuronx.debug import FallbackForbidden
from torch_neuronx.eager import host


def device_coo(**kwargs) -> torch.Tensor:
    return coo(4, 5, nnz=6, **kwargs).to("neuron")


@pytest.mark.parametrize("name", ["hspmm", "smm", "mm"])
def test_products_of_hybrid_matrices(name):
    hybrid = torch.sparse_coo_tensor(torch.tensor([[0, 1]]), torch.ones(2, 3), (2, 3)).to("neuron")
    with pytest.raises(RuntimeError, match="two sparse dims"):
        getattr(torch, name)(hybrid, torch.ones(3, 2, device="neuron"))


def test_invariants_of_coo():
    values = torch.ones(2, device="neuron")
    with torch.sparse.check_sparse_tensor_invariants():
        for rows, words in (([0, 5], "size is inconsistent with indices"), ([0, -1], "found negative index")):
            with pytest.raises(RuntimeError, match=words):
                torch.sparse_coo_tensor(torch.tensor([rows, [0, 1]], device="neuron"), values, (2, 3))


@pytest.mark.parametrize(
    ("crow", "column"),
    [
        ([1, 1, 2], [0, 1]),
        ([0, 1, 3], [0, 1]),
        ([0, 3, 2], [0, 1]),
        ([0, 1, 2], [0, 5]),
        ([0, 1, 2], [0, -1]),
        ([0, 2, 2], [1, 0]),
        ([0, 2, 2], [1, 1]),
        ([0, 1], [0, 1]),
    ],
)
@pytest.mark.parametrize("make", [torch.sparse_csr_tensor, torch.sparse_csc_tensor])
def test_invariants_of_compressed(make, crow, column):
    said = []
    for where in ("cpu", "neuron"):
        with torch.sparse.check_sparse_tensor_invariants(), pytest.raises(RuntimeError) as error:
            make(
                torch.tensor(crow, device=where),
                torch.tensor(column, device=where),
                torch.ones(2, device=where),
                (2, 2),
            )
        said.append(str(error.value))
    assert said[0] == said[1]


def test_indices_outside_are_found_when_used():
    """Without the checks, torch takes any indices; using them must not read or write elsewhere."""
    bad = torch.tensor([[0, 7], [2, 0]], device="neuron")
    x = torch.sparse_coo_tensor(bad, torch.ones(2, device="neuron"), (2, 3), check_invariants=False)
    with pytest.raises((IndexError, RuntimeError), match="out of"):
        x.to_dense().cpu()


def test_shapes_that_do_not_fit():
    x = device_coo()
    for call in (
        lambda: x + device_coo().transpose(0, 1),
        lambda: x * device_coo().transpose(0, 1),
        lambda: torch.mm(x, torch.ones(4, 2, device="neuron")),
        lambda: torch.ones(3, device="neuron") + x,
        lambda: torch.ones(5, 4, device="neuron").sparse_mask(x),
        lambda: torch.bmm(coo(2, 3, 4, nnz=4).to("neuron"), torch.ones(2, 3, 4, device="neuron")),
        lambda: torch.sparse.sampled_addmm(x.to_sparse_csr(), torch.ones(4, 2), torch.ones(2, 5)),
    ):
        with pytest.raises(RuntimeError):
            call()
    with pytest.raises(IndexError, match="out of range"):
        x.index_select(0, torch.tensor([9], device="neuron"))
    with pytest.raises(IndexError, match="Dimension out of range"):
        torch.sparse.softmax(x, 2)


def test_devices_do_not_mix():
    x = device_coo()
    for call in (
        lambda: x + coo(4, 5, nnz=3),
        lambda: x * torch.ones(4, 5),
        lambda: x @ torch.ones(5, 2),
        lambda: torch.ones(4, 5).sparse_mask(x),
        lambda: torch.ones(4, 5, device="neuron").sparse_mask(coo(4, 5, nnz=3)),
    ):
        with pytest.raises(RuntimeError, match=r"device|backend"):
            call()
    assert torch.equal((x * torch.tensor(2.0)).to_dense().cpu(), x.to_dense().cpu() * 2)


def test_what_cpu_has_no_kernel_for():
    with pytest.raises(NotImplementedError, match=r"aten::exp: .*no kernel of it for sparse tensors.*to_dense"):
        device_coo().exp()
    with pytest.raises(NotImplementedError, match="aten::view"):
        device_coo().view(-1)


def test_a_fallback_is_counted_and_can_be_forbidden(monkeypatch):
    """No operator needs one today, so one is run through the host's path directly."""
    x = device_coo()
    (out,) = host.run("aten::_coalesce", (x,), "a test")
    assert out.device.type == "neuron" and out.is_coalesced()
    assert torch.equal(out.to_dense().cpu(), x.cpu().to_dense())
    monkeypatch.setenv("TORCH_NEURONX_DISABLE_FALLBACK", "1")
    with pytest.raises(FallbackForbidden):
        host.run("aten::_coalesce", (x,), "a test")
