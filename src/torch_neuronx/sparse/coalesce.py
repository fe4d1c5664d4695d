"""Sorting the indices of a COO tensor and adding up what stands at one place."""

from __future__ import annotations

import torch
from torch import Tensor

from torch_neuronx.sparse.parts import keys, make_coo, sparse_sizes, sum_rows, unkey
from torch_neuronx.sparse.table import kernel


@kernel("aten::_coalesce")
def coalesce(self: Tensor) -> Tensor:
    indices, values = self._indices(), self._values()
    if self._nnz() < 2:
        return make_coo(indices.clone(), values.clone(), self.shape, coalesced=True)
    sizes = sparse_sizes(self)
    unique, group = torch.unique(keys(indices, sizes), return_inverse=True)
    return make_coo(unkey(unique, sizes), sum_rows(values, group, unique.shape[0]), self.shape, coalesced=True)
