"""Where a CPU tensor may meet the device: numbers, and indices in brackets, as on CUDA. Nowhere else."""

import pytest
import torch

D = "neuron"

REFUSED = {
    "embedding indices": lambda: torch.nn.Embedding(4, 2).to(D)(torch.tensor([1])),
    "embedding weight": lambda: torch.nn.Embedding(4, 2)(torch.tensor([1], device=D)),
    "gather": lambda: torch.randn(4, 4, device=D).gather(0, torch.zeros(1, 1, dtype=torch.long)),
    "index_select": lambda: torch.randn(4, device=D).index_select(0, torch.tensor([1])),
    "index_add": lambda: torch.randn(4, device=D).index_add_(0, torch.tensor([1]), torch.ones(1, device=D)),
    "indexed tensor": lambda: torch.randn(4)[torch.tensor([1], device=D)],
    "values put": lambda: torch.randn(4, device=D).index_put_((torch.tensor([1, 2]),), torch.ones(2)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        REFUSED[name]()


def test_indices_in_brackets_and_numbers():
    x = torch.arange(12.0, device=D).reshape(3, 4)
    assert x[torch.tensor([2, 0])].cpu().tolist() == [[8, 9, 10, 11], [0, 1, 2, 3]]
    x[torch.tensor([True, False, True])] = torch.tensor(5.0)
    x.index_fill_(0, torch.tensor([1], device=D), torch.tensor(7.0))
    assert (x * torch.tensor(2.0)).cpu().unique().tolist() == [10, 14]
