"""Making sparse tensors, converting between layouts, moving them between devices."""

from __future__ import annotations

import pytest
import torch

from tests.sparse.compare import agree, coo, holey
from torch_neuronx import no_fallback

COMPRESSED = {
    "csr": lambda d: d.to_sparse_csr(),
    "csc": lambda d: d.to_sparse_csc(),
    "bsr": lambda d: d.to_sparse_bsr((2, 3)),
    "bsc": lambda d: d.to_sparse_bsc((2, 3)),
}
TENSORS = {
    "uncoalesced": lambda: coo(4, 5, nnz=9),
    "coalesced": lambda: coo(4, 5, nnz=9).coalesce(),
    "hybrid": lambda: coo(4, 5, 3, nnz=7, sparse=2),
    "empty": lambda: torch.sparse_coo_tensor((4, 5)),
    "no sparse dim": lambda: torch.sparse_coo_tensor(torch.zeros(0, 3, dtype=torch.int64), torch.randn(3, 2), (2,)),
}


def test_coo_from_parts():
    def make(indices, values):
        return [torch.sparse_coo_tensor(indices, values, (2, 3)), torch.sparse_coo_tensor(indices, values)]

    agree(make, torch.tensor([[0, 1, 1], [2, 0, 2]]), torch.tensor([3.0, 4.0, 5.0]))


def test_compressed_from_parts():
    def make(crow, column, values, blocks):
        return [
            torch.sparse_csr_tensor(crow, column, values, (2, 3)),
            torch.sparse_csc_tensor(crow, column, values, (3, 2)),
            torch.sparse_bsr_tensor(crow, column, blocks, (4, 6)),
            torch.sparse_bsc_tensor(crow, column, blocks, (6, 4)),
        ]

    with torch.sparse.check_sparse_tensor_invariants():
        agree(make, torch.tensor([0, 1, 3]), torch.tensor([2, 0, 2]), torch.randn(3), torch.randn(3, 2, 2))


@pytest.mark.parametrize("kind", TENSORS)
def test_coalesce_and_to_dense(kind):
    with no_fallback():
        agree(lambda x: [x.coalesce(), x.to_dense(), x.clone(), x.detach()], TENSORS[kind]())


def test_coalesce_adds_what_is_at_one_place():
    x = torch.sparse_coo_tensor(torch.tensor([[1, 0, 1], [2, 0, 2]]), torch.tensor([3.0, 4.0, 5.0]), (2, 3))
    y = x.to("neuron").coalesce()
    assert y.is_coalesced() and y.indices().tolist() == [[0, 1], [0, 2]] and y.values().tolist() == [4.0, 8.0]


def test_dense_to_every_layout_and_back():
    x = holey(4, 6)
    with no_fallback():
        agree(lambda d: [d.to_sparse(), d.to_sparse(1), d.to_sparse().to_dense()], x)
        for convert in COMPRESSED.values():
            agree(lambda d, convert=convert: [convert(d), convert(d).to_dense(), convert(d).to_sparse()], x)


@pytest.mark.parametrize("source", COMPRESSED)
def test_between_compressed_layouts(source):
    x = COMPRESSED[source](holey(4, 6))
    targets = ["bsr", "bsc"] if source in ("bsr", "bsc") else list(COMPRESSED)
    with no_fallback():
        agree(lambda x: [COMPRESSED[target](x) for target in targets], x)


def test_batches_and_hybrids():
    batch = torch.tensor([[[1.0, 0, 2], [0, 3, 0]], [[0, 4, 0], [5, 0, 6]]])
    agree(lambda d: [d.to_sparse_csr(), d.to_sparse_csr().to_dense(), d.to_sparse_csc().to_sparse()], batch)
    agree(lambda d: [d.to_sparse_bsr((1, 1)), d.to_sparse_csr(dense_dim=1).to_dense()], torch.randn(2, 3, 2))


def test_moving_keeps_everything():
    for make in TENSORS.values():
        x = make()
        y = x.to("neuron").cpu()
        assert y.is_coalesced() == x.is_coalesced() and torch.equal(y._indices(), x._indices())
        assert torch.equal(y._values(), x._values()) and y.shape == x.shape
    x = torch.randn(4, 6).to_sparse_bsr((2, 2))
    assert torch.equal(x.to("neuron", torch.float64).cpu().values(), x.values().double())


def test_copy_between_devices():
    x = coo(4, 5, nnz=6).coalesce()
    y = torch.zeros_like(x).to("neuron").copy_(x)
    assert torch.equal(y.to_dense().cpu(), x.to_dense())
    z = torch.zeros_like(x).copy_(y)
    assert torch.equal(z.to_dense(), x.to_dense())
