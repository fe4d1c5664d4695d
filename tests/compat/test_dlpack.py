"""DLPack: capsules keep sharing memory, views stay views, other devices are copied to."""

import numpy
import pytest
import torch


def test_the_device_is_an_extension_device():
    kind, index = torch.empty(2, device="neuron").__dlpack_device__()
    assert (int(kind), index) == (12, 0)
    assert int(torch.empty(2).__dlpack_device__()[0]) == 1


def test_a_view_from_torch_to_torch_shares_its_storage():
    base = torch.empty(10, device="neuron")
    again = torch.from_dlpack(base[3:])
    assert again.storage_offset() == 3
    assert again.untyped_storage().data_ptr() == base.untyped_storage().data_ptr()


def test_a_capsule_shares_its_storage():
    base = torch.ones(4, device="neuron")
    again = torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(base))
    assert again.device == base.device
    again.add_(1)
    assert base.tolist() == [2.0, 2.0, 2.0, 2.0]


def test_a_capsule_of_a_view_is_refused_in_words():
    capsule = torch.utils.dlpack.to_dlpack(torch.ones(4, device="neuron")[1:])
    with pytest.raises(RuntimeError, match=r"Export tensor.clone\(\)"):
        torch.utils.dlpack.from_dlpack(capsule).cpu()


def test_from_and_to_other_libraries():
    tensor = torch.from_dlpack(numpy.arange(3.0), device="neuron")
    assert tensor.device.type == "neuron" and tensor.tolist() == [0.0, 1.0, 2.0]
    assert torch.from_dlpack(tensor, device="cpu").tolist() == [0.0, 1.0, 2.0]
    with pytest.raises(ValueError, match="without copying"):
        torch.from_dlpack(tensor, device="cpu", copy=False)


def test_copies():
    base = torch.ones(2, device="neuron")
    torch.from_dlpack(base, copy=True).add_(1)
    assert base.tolist() == [1.0, 1.0]


def test_tensors_that_require_grad_are_refused():
    with pytest.raises(BufferError, match="detach"):
        torch.from_dlpack(torch.empty(2, device="neuron", requires_grad=True))
