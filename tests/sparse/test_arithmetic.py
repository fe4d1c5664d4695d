"""Functions of elements, sums, products and selections of sparse tensors, equal to the CPU's."""

from __future__ import annotations

import pytest
import torch

from tests.sparse.compare import agree, coo, holey
from torch_neuronx import no_fallback

KINDS = {
    "uncoalesced": lambda: coo(4, 5, nnz=9),
    "coalesced": lambda: coo(4, 5, nnz=9).coalesce(),
    "hybrid": lambda: coo(4, 5, 3, nnz=7, sparse=2),
    "no entries": lambda: torch.sparse_coo_tensor((4, 5)),
}
OTHERS = {
    "uncoalesced": lambda: coo(4, 5, nnz=9, seed=1),
    "coalesced": lambda: coo(4, 5, nnz=9, seed=1).coalesce(),
    "no entries": KINDS["no entries"],
}


@pytest.fixture(autouse=True)
def nothing_falls_back():
    with no_fallback():
        yield


def compressed(name: str, seed: int = 0) -> torch.Tensor:
    block = (2, 3) if name.startswith("sparse_b") else None
    return holey(4, 6, seed=seed).to_sparse(layout=getattr(torch, name), blocksize=block)


@pytest.mark.parametrize("kind", ["hybrid", "coalesced", "no entries"])
def test_with_itself_and_numbers(kind):
    agree(lambda x: [x + x, x - x, x.add(x, alpha=3), x * 2, x / 2, x // 2, -x, x**2], KINDS[kind]())
    agree(lambda x: [x.clone().add_(x), torch.abs(x, out=torch.zeros_like(x)), x.clone().zero_()], KINDS[kind]())


@pytest.mark.parametrize("kind", ["hybrid"])
def test_with_dense(kind):
    x = KINDS[kind]()
    agree(
        lambda s, d: [d + s, torch.add(d, s, alpha=2), d - s, s * d, d * s, d.clone().add_(s)], x, torch.randn(x.shape)
    )


@pytest.mark.parametrize("left", ["uncoalesced", "coalesced"])
@pytest.mark.parametrize("right", ["uncoalesced", "coalesced", "no entries"])
def test_with_each_other(left, right):
    agree(lambda a, b: [a + b, b - a, a * b, b * a], KINDS[left](), OTHERS[right]())


def test_dtypes_are_promoted():
    agree(lambda a, b: [a * b, b * a, a + b], coo(4, 5, nnz=9), coo(4, 5, nnz=5, dtype=torch.int64, seed=1))
    agree(lambda a: [a.double(), a.to(torch.int64), a.half(), a.bool()], coo(4, 5, nnz=9))


def test_dense_broadcasts_to_dense_dims():
    hybrid = coo(4, 5, 3, nnz=7, sparse=2).coalesce()
    agree(lambda a, b: a * b, hybrid, torch.randn(3))
    agree(lambda a, b: a * b, hybrid, torch.randn(5, 1))


@pytest.mark.parametrize("kind", ["uncoalesced", "hybrid"])
def test_reductions(kind):
    agree(lambda x: [x.sum(), torch.sparse.sum(x, 0), torch.sparse.sum(x, -1), x.any(), x.norm()], KINDS[kind]())


@pytest.mark.parametrize("kind", ["hybrid", "no entries"])
def test_softmax(kind):
    x = KINDS[kind]()
    agree(lambda x: [torch.sparse.softmax(x, d) for d in range(x.dim())], x)
    agree(lambda x: [torch.sparse.log_softmax(x, d) for d in range(x.dim())], x)


@pytest.mark.parametrize("kind", ["uncoalesced", "hybrid"])
def test_selections(kind):
    x, index = KINDS[kind](), torch.tensor([1, 0, 1])
    agree(lambda x, i: [x.index_select(d, i) for d in range(x.dim())], x, index)
    agree(lambda x: [x.select(0, 1), x[1], x.narrow_copy(1, 1, 2), x.unsqueeze(0), x.transpose(0, 1)], x)
    agree(lambda x: [torch.cat([x, x]), torch.stack([x, x]), x.permute(1, 0, *range(2, x.dim()))], x)
    agree(lambda x, d: [d.sparse_mask(x), x.sparse_mask(x.coalesce())], x, torch.randn(x.shape))


def test_a_mask_with_other_entries():
    agree(lambda a, b: [a.sparse_mask(b), b.sparse_mask(a)], coo(4, 5, nnz=9), coo(4, 5, nnz=9, seed=1).coalesce())


@pytest.mark.parametrize("name", ["sparse_csr", "sparse_bsc"])
def test_compressed(name):
    agree(lambda x: [x + x, x.add(x, alpha=2), x * 2, -x, x.relu(), x.sum()], compressed(name))
    agree(lambda x: [x.clone().zero_(), x.clone().fill_(3), x.clone().abs_(), x.double()], compressed(name))
    x = compressed(name)
    agree(lambda x, d: d.sparse_mask(x), x, torch.randn(x.shape))


def test_compressed_with_others():
    a, b = compressed("sparse_csr"), compressed("sparse_csr", seed=1)
    agree(lambda a, b, d: [a + b, a * b, d + a, a * d], a, b, torch.randn(4, 6))
    agree(lambda a: [a.sum(0, keepdim=True), a.sum(1, keepdim=True), a.sum((0, 1), keepdim=True)], a)
    agree(lambda a: [torch._sparse_csr_prod(a, [d], True) for d in (0, 1)], a)


@pytest.mark.parametrize("name", ["sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc"])
def test_batches_of_compressed(name):
    block = (2, 3) if name.startswith("sparse_b") else None
    a = holey(4, 6).expand(2, 4, 6).mul(torch.tensor([1.0, 2.0])[:, None, None])
    x = a.to_sparse(layout=getattr(torch, name), blocksize=block).to("neuron")
    torch.testing.assert_close(torch.add(x, x, alpha=3).cpu().to_dense(), a * 4)
    assert (x + x).layout == x.layout
    torch.testing.assert_close(x.add_(x).cpu().to_dense(), a * 2)
    fewer = a.clone()
    fewer[:, :2, :3] = 0
    other = fewer.to_sparse(layout=getattr(torch, name), blocksize=block).to("neuron")
    with pytest.raises(RuntimeError, match="same places"):
        x + other


def test_complex():
    x = coo(3, 4, nnz=5, dtype=torch.complex64)
    agree(lambda x: [x.conj(), torch.conj_physical(x), torch.view_as_real(x), x * x, x.abs(), x.to_dense()], x)
