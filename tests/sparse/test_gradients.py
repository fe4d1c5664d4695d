"""Gradients through sparse tensors, and gradients that are sparse themselves."""

from __future__ import annotations

import copy

import pytest
import torch

from tests.sparse.compare import agree_backward, assert_same, coo
from torch_neuronx import no_fallback


@pytest.fixture(autouse=True)
def nothing_falls_back():
    with no_fallback():
        yield


def wanted(x: torch.Tensor) -> torch.Tensor:
    return x.detach().requires_grad_()


COO = {
    "to_dense": lambda x: x.to_dense(),
    "coalesce": lambda x: x.coalesce().values(),
    "sum": torch.sparse.sum,
    "sum of a dim": lambda x: torch.sparse.sum(x, 0),
    "softmax": lambda x: torch.sparse.softmax(x, 1),
    "log_softmax": lambda x: torch.sparse.log_softmax(x, 0),
    "functions": lambda x: -(x * 2).abs(),
    "rearranged": lambda x: x.transpose(0, 1) * 2,
    "csr": lambda x: x.to_sparse_csr().values(),
}


# CPU torch has no gradient of the conversion of a hybrid tensor to CSR.
@pytest.mark.parametrize("name, size", [(n, s) for n in COO for s in ((4, 5), (4, 5, 3)) if (n, len(s)) != ("csr", 3)])
def test_coo(name, size):
    agree_backward(COO[name], wanted(coo(*size, nnz=8, sparse=2).coalesce()))


def test_products():
    dense = wanted(torch.randn(5, 3))
    sparse = wanted(coo(4, 5, nnz=9).coalesce())
    agree_backward(torch.sparse.mm, sparse, dense)
    agree_backward(
        lambda m, a, d: torch.sparse.addmm(m, a, d, beta=2, alpha=3), wanted(torch.randn(4, 3)), sparse, dense
    )
    agree_backward(torch.sparse.mm, sparse, wanted(coo(5, 4, nnz=7).coalesce()))
    agree_backward(torch.bmm, wanted(coo(2, 3, 4, nnz=8).coalesce()), wanted(torch.randn(2, 4, 3)))


def test_compressed():
    csr = wanted(coo(4, 5, nnz=9).coalesce().to_sparse_csr())
    agree_backward(lambda a: a.to_dense(), csr)
    agree_backward(lambda a, d: a @ d, csr, wanted(torch.randn(5, 3)))
    agree_backward(torch.nn.functional.linear, wanted(torch.randn(3, 5)), csr)
    agree_backward(torch.sparse.sampled_addmm, csr, wanted(torch.randn(4, 3)), wanted(torch.randn(3, 5)))
    for reduce in ("sum", "mean", "amax", "amin"):
        agree_backward(lambda a, d, r=reduce: torch.sparse.mm(a, d, r), csr, wanted(torch.randn(5, 3)))


def test_values_of_a_constructed_tensor():
    def run(values):
        indices = torch.tensor([[0, 1, 1], [2, 0, 2]], device=values.device)
        return torch.sparse_coo_tensor(indices, values, (2, 3)).to_dense()

    agree_backward(run, wanted(torch.randn(3)))


def test_a_mask_adds_up_its_matches():
    mask = torch.sparse_coo_tensor(torch.tensor([[0, 0, 1], [2, 2, 0]]), torch.ones(3), (2, 3))
    agree_backward(lambda x, m: x.sparse_mask(m), wanted(torch.randn(2, 3)), mask)


def test_softmax_of_a_negative_dim():
    """CPU torch's gradient there is that of another dimension; ours is the same for -1 and for 1."""
    x = wanted(coo(4, 5, nnz=9).coalesce()).to("neuron").detach().requires_grad_()
    y = torch.sparse.softmax(x, 1)
    cotangent = y.detach() * 0.5
    (positive,) = torch.autograd.grad(y, x, cotangent)
    (negative,) = torch.autograd.grad(torch.sparse.softmax(x, -1), x, cotangent)
    assert torch.equal(positive.coalesce().values(), negative.coalesce().values())


def test_embeddings():
    weight, index, offsets = wanted(torch.randn(6, 3)), torch.tensor([1, 2, 1, 5, 0]), torch.tensor([0, 2])
    agree_backward(lambda w, i: torch.nn.functional.embedding(i, w, padding_idx=1, sparse=True), weight, index)
    for mode in ("sum", "mean"):
        agree_backward(
            lambda w, i, o, m=mode: torch.nn.functional.embedding_bag(i, w, o, mode=m, sparse=True),
            weight,
            index,
            offsets,
        )
    agree_backward(lambda x, i: torch.gather(x, 0, i, sparse_grad=True), weight, torch.tensor([[0, 1, 2], [1, 1, 0]]))


@pytest.mark.parametrize(
    "optimizer",
    [
        lambda p: torch.optim.SparseAdam(p, lr=0.1),
        lambda p: torch.optim.SGD(p, lr=0.1),
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
        lambda p: torch.optim.Adagrad(p, lr=0.1),
    ],
    ids=["SparseAdam", "SGD", "momentum", "Adagrad"],
)
def test_optimizers(optimizer):
    host = torch.nn.Embedding(10, 4, sparse=True)
    device = copy.deepcopy(host).to("neuron")
    for model in (host, device):
        steps = optimizer(list(model.parameters()))
        for index in (torch.tensor([1, 3, 1]), torch.tensor([2, 3, 9])):
            steps.zero_grad()
            where = model.weight.device
            (model(index.to(where)) ** 2).sum().backward()
            assert model.weight.grad.is_sparse
            steps.step()
    assert_same(device.weight, host.weight)
