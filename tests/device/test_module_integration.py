"""Modules keep their parameters when they move, autograd works, and torch's generic helpers know the device."""

import pytest
import torch


def test_shallow_copies_are_compatible():
    ours, theirs = torch.empty(2, device="neuron"), torch.empty(2)
    assert torch._has_compatible_shallow_copy_type(theirs, ours)
    assert torch._has_compatible_shallow_copy_type(ours, theirs)
    sparse = torch.sparse_coo_tensor([[0]], [1.0], (2,))
    assert not torch._has_compatible_shallow_copy_type(sparse, ours)


def test_a_module_keeps_its_parameters():
    module = torch.nn.Linear(3, 2)
    weight = module.weight
    assert module.to("neuron").weight is weight and weight.device.type == "neuron"
    assert module.neuron().weight is weight
    module.cpu()
    assert module.weight is weight and weight.device.type == "cpu"


def test_gradients_flow():
    x = torch.ones(3, device="neuron", requires_grad=True)
    (x * x).sum().backward()
    assert x.grad.device.type == "neuron" and x.grad.tolist() == [2.0, 2.0, 2.0]


def test_default_device():
    torch.set_default_device("neuron")
    try:
        assert torch.zeros(2).device.type == "neuron"
        assert torch.nn.Linear(2, 2).weight.device.type == "neuron"
    finally:
        torch.set_default_device(None)  # "cpu" would leave a function mode behind, which ends fast paths


def test_checkpointing():
    layer = torch.nn.Linear(2, 2).to("neuron")
    x = torch.ones(1, 2, device="neuron", requires_grad=True)
    torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False).sum().backward()
    assert x.grad is not None


def test_numpy_refuses_as_on_every_device():
    with pytest.raises(TypeError, match="can't convert neuron"):
        torch.ones(2, device="neuron").numpy()


def test_meta_tensors_become_device_tensors():
    with torch.device("meta"):
        module = torch.nn.Linear(2, 2)
    assert module.to_empty(device="neuron").weight.device.type == "neuron"


def test_quantizing_is_refused():
    with pytest.raises((NotImplementedError, RuntimeError)):
        torch.empty(2, device="neuron").new_empty(2, dtype=torch.qint8)
