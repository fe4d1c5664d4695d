"""Printing, copying, pickling and saving sparse tensors on the device."""

from __future__ import annotations

import copy
import io
import pickle

import pytest
import torch

LAYOUTS = (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)


@pytest.fixture(params=LAYOUTS, ids=str)
def matrix(request):
    block = (2, 2) if request.param in (torch.sparse_bsr, torch.sparse_bsc) else None
    return torch.eye(4, device="neuron").to_sparse(layout=request.param, blocksize=block)


def test_print(matrix):
    shown = repr(matrix)
    assert "device='neuron:0'" in shown and str(matrix.layout) in shown and "size=(4, 4)" in shown


def test_copies(matrix):
    for copied in (copy.deepcopy(matrix), pickle.loads(pickle.dumps(matrix))):
        assert copied.layout == matrix.layout and copied.device == matrix.device
        assert torch.equal(copied.to_dense().cpu(), torch.eye(4))
    other = copy.deepcopy(matrix).mul_(2)
    assert torch.equal(matrix.to_dense().cpu(), torch.eye(4)) and other.to_dense().sum().item() == 8.0


def test_save_and_load(matrix):
    file = io.BytesIO()
    torch.save({"matrix": matrix}, file)
    for where, kind in ((None, "neuron"), ("cpu", "cpu")):
        file.seek(0)
        loaded = torch.load(file, map_location=where)["matrix"]
        assert loaded.device.type == kind and loaded.layout == matrix.layout
        assert torch.equal(loaded.to_dense().cpu(), torch.eye(4))


def test_a_sparse_parameter_moves_with_its_module():
    module = torch.nn.Module()
    module.weight = torch.nn.Parameter(torch.eye(4).to_sparse())
    module.to("neuron")
    assert module.weight.is_sparse and module.weight.device.type == "neuron"
