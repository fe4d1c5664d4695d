"""Matrix products and solves with sparse matrices, equal to the CPU's."""

from __future__ import annotations

import pytest
import torch

from tests.sparse.compare import agree, coo, holey
from torch_neuronx import no_fallback


@pytest.fixture(autouse=True)
def nothing_falls_back():
    with no_fallback():
        yield


def test_coo_by_dense():
    agree(lambda a, d: [a @ d, torch.sparse.mm(a, d), a.mv(d[:, 0])], coo(4, 5, nnz=9), torch.randn(5, 3))
    agree(lambda a, d: torch.mm(a, d, out=d.new_empty(4, 3)), coo(4, 5, nnz=9), torch.randn(5, 3))
    agree(lambda d, a: d @ a, torch.randn(3, 4), coo(4, 5, nnz=9))


def test_addmm():
    def run(m, a, d):
        return [torch.addmm(m, a, d, beta=2, alpha=3), torch.sparse.addmm(m, a, d, beta=0.5), m.clone().addmm_(a, d)]

    agree(run, torch.randn(4, 3), coo(4, 5, nnz=9), torch.randn(5, 3))


def test_sparse_by_sparse():
    agree(lambda a, b: [a @ b, torch.sparse.mm(b, a)], coo(4, 5, nnz=9), coo(5, 4, nnz=8))
    agree(lambda a, b: a @ b, coo(4, 5, nnz=3), torch.sparse_coo_tensor((5, 4)))


def test_batches_and_hybrid_results():
    agree(lambda a, d: a.bmm(d), coo(2, 3, 4, nnz=9), torch.randn(2, 4, 3))
    agree(lambda a, d: [torch.hspmm(a, d), torch.smm(a, d)], coo(4, 5, nnz=9), torch.randn(5, 3))
    agree(lambda m, a, d: torch.sspaddmm(m, a, d, beta=2), coo(4, 3, nnz=3), coo(4, 5, nnz=9), torch.randn(5, 3))


@pytest.mark.parametrize("layout", [torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr])
def test_compressed_by_dense(layout):
    block = (2, 2) if layout == torch.sparse_bsr else None
    a = holey(4, 6).to_sparse(layout=layout, blocksize=block)
    agree(lambda a, d, v: [a @ d, torch.sparse.mm(a, d), a @ v], a, torch.randn(6, 3), torch.randn(6))
    agree(lambda m, a, d: torch.addmm(m, a, d, beta=2, alpha=0.5), torch.randn(4, 3), a, torch.randn(6, 3))


def test_sampled_addmm():
    pattern = coo(4, 5, nnz=9).coalesce().to_sparse_csr()
    agree(
        lambda s, a, b: [torch.sparse.sampled_addmm(s, a, b), torch.sparse.sampled_addmm(s, a, b, beta=0.5, alpha=2)],
        pattern,
        torch.randn(4, 3),
        torch.randn(3, 5),
    )
    batch = torch.tensor([[[1.0, 0, 2], [0, 3, 0]], [[0, 4, 0], [5, 0, 6]]]).to_sparse_csr()
    agree(torch.sparse.sampled_addmm, batch, torch.randn(2, 2, 4), torch.randn(2, 4, 3))


@pytest.mark.parametrize("reduce", ["sum", "mean", "amax", "amin"])
def test_reducing_products(reduce):
    matrix = coo(4, 5, nnz=9).coalesce().to_sparse_csr()
    agree(lambda a, d: torch.sparse.mm(a, d, reduce), matrix, torch.randn(5, 3))


@pytest.mark.parametrize("upper", [True, False])
@pytest.mark.parametrize("transpose", [True, False])
def test_triangular_solve(upper, transpose):
    square = torch.randn(4, 4) + 3 * torch.eye(4)
    matrix = (square.triu() if upper else square.tril()).to_sparse_csr()
    agree(lambda b, a: b.triangular_solve(a, upper, transpose).solution, torch.randn(4, 2), matrix)


def test_diagonals():
    offsets = torch.tensor([0, 1, -2])
    got = torch.sparse.spdiags(torch.randn(3, 4), offsets, (4, 4))
    on_device = torch.ops.aten._spdiags(torch.ones(3, 4, device="neuron"), offsets.to("neuron"), [4, 4], None)
    assert on_device.cpu().coalesce().indices().tolist() == got.coalesce().indices().tolist()
