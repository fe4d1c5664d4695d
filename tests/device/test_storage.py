"""Storages: resizing, re-pointing, sharing."""

import copy
import io
import pickle

import pytest
import torch


def test_resize_smaller_keeps_the_storage():
    tensor = torch.empty(10, device="neuron")
    address = tensor.untyped_storage().data_ptr()
    tensor.resize_(2, 3)
    assert tensor.shape == (2, 3) and tensor.untyped_storage().data_ptr() == address
    assert tensor.untyped_storage().nbytes() == 40


def test_resize_larger_grows_the_storage():
    tensor = torch.empty(2, device="neuron")
    view = tensor[1:]
    tensor.resize_(100)
    assert tensor.untyped_storage().nbytes() == 400
    assert view.untyped_storage().data_ptr() == tensor.untyped_storage().data_ptr()


def test_resize_takes_the_offset_into_account():
    tensor = torch.empty(10, device="neuron")[8:]
    tensor.resize_(5)
    assert tensor.storage_offset() == 8 and tensor.untyped_storage().nbytes() == 13 * 4


def test_resize_memory_format():
    tensor = torch.empty(0, device="neuron").resize_(2, 3, 4, 5, memory_format=torch.channels_last)
    assert tensor.is_contiguous(memory_format=torch.channels_last)
    with pytest.raises(RuntimeError, match="unsupported memory format"):
        tensor.resize_(2, 3, 4, 6, memory_format=torch.preserve_format)


def test_resize_negative_is_refused():
    with pytest.raises(RuntimeError, match="negative dimension"):
        torch.empty(2, device="neuron").resize_(-3)


def test_a_storage_can_be_emptied_and_grown_again():
    tensor = torch.empty(1000, device="neuron")
    before = torch.neuron.memory_allocated()
    tensor.untyped_storage().resize_(0)
    assert tensor.untyped_storage().nbytes() == 0
    assert before - torch.neuron.memory_allocated() >= 4000
    tensor.untyped_storage().resize_(4000)
    assert tensor.untyped_storage().nbytes() == 4000


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool, torch.complex64], ids=str)
def test_growing_keeps_the_values(dtype):
    values = torch.tensor([1, 0, 1, 1]).to(dtype)
    tensor = values.to("neuron")
    tensor.resize_(7)
    assert torch.equal(tensor[:4].cpu(), values)


def test_growing_by_an_odd_number_of_bytes_keeps_the_values():
    storage = torch.tensor([1.5, 2.5]).to("neuron").untyped_storage()
    storage.resize_(11)
    assert torch.tensor([], device="neuron").set_(storage, 0, (2,)).tolist() == [1.5, 2.5]


def test_set_to_another_tensor():
    source = torch.empty(4, 6, device="neuron")[1:]
    tensor = torch.empty(0, device="neuron").set_(source)
    assert tensor.is_set_to(source)


def test_set_to_a_storage():
    storage = torch.empty(12, device="neuron").untyped_storage()
    whole = torch.empty(0, device="neuron").set_(storage)
    part = torch.empty(0, device="neuron").set_(storage, 2, (2, 3), (3, 1))
    assert whole.shape == (12,) and part.shape == (2, 3) and part.storage_offset() == 2
    assert part.untyped_storage().data_ptr() == storage.data_ptr()


def test_set_to_nothing():
    tensor = torch.empty(3, device="neuron")
    tensor.set_()
    assert tensor.shape == (0,) and tensor.device.type == "neuron"


def test_set_to_another_device_is_refused():
    with pytest.raises(RuntimeError, match="different device"):
        torch.empty(3, device="neuron").set_(torch.empty(3).untyped_storage())


def test_record_stream():
    tensor = torch.empty(3, device="neuron")
    tensor.record_stream(torch.neuron.Stream())
    with pytest.raises(RuntimeError):
        tensor.record_stream(torch.Stream(device="cpu"))


def test_untyped_storages_can_be_made():
    assert torch.UntypedStorage(24, device="neuron").nbytes() == 24


def test_tensor_data_assignment():
    parameter = torch.nn.Parameter(torch.ones(3))
    parameter.data = torch.zeros(5).to("neuron")
    assert parameter.device.type == "neuron" and parameter.shape == (5,)


def test_deepcopy_keeps_sharing():
    base = torch.arange(6.0).to("neuron")
    first, second = copy.deepcopy([base, base[2:]])
    second[0] = 10.0
    assert first.cpu()[2] == 10.0 and base.cpu()[2] == 2.0


def test_pickle_keeps_device_and_values():
    tensor = torch.arange(6.0).view(2, 3).t().to("neuron")
    again = pickle.loads(pickle.dumps(tensor))
    assert again.device.type == "neuron" and torch.equal(again.cpu(), tensor.cpu())


@pytest.mark.parametrize("weights_only", [True, False])
def test_a_saved_file_opens_anywhere(weights_only):
    file = io.BytesIO()
    base = torch.arange(6.0).to("neuron")
    torch.save({"all": base, "part": base[1:3]}, file)
    file.seek(0)
    loaded = torch.load(file, map_location="cpu", weights_only=weights_only)
    assert loaded["part"].device.type == "cpu" and loaded["part"].tolist() == [1.0, 2.0]
    assert loaded["all"].untyped_storage().data_ptr() == loaded["part"].untyped_storage().data_ptr()
    file.seek(0)
    assert torch.load(file, weights_only=weights_only)["all"].device.type == "neuron"


def test_a_lazy_clone_is_a_copy():
    tensor = torch.arange(4.0).to("neuron")
    clone = torch._lazy_clone(tensor)
    clone.add_(1)
    assert tensor.cpu().tolist() == [0.0, 1.0, 2.0, 3.0] and clone.cpu().tolist() == [1.0, 2.0, 3.0, 4.0]


def test_a_storage_is_as_large_as_what_the_data_gave():
    """Its array has room for all elements; torch sees the rows there are."""
    x = torch.arange(12.0, device="neuron").view(3, 4)
    for got, want in ((x[x > 6], x.cpu()[x.cpu() > 6]), (x.nonzero(), x.cpu().nonzero())):
        assert got.untyped_storage().nbytes() == want.untyped_storage().nbytes() == want.numel() * want.itemsize
    picked = x[x > 6]
    picked.copy_(torch.arange(5.0))
    picked[1:3].mul_(10)
    assert (picked + 1).tolist() == [1.0, 11.0, 21.0, 4.0, 5.0]
    assert picked.resize_(7)[:5].tolist() == [0.0, 10.0, 20.0, 3.0, 4.0]
    file = io.BytesIO()
    torch.save(x[x > 6], file)
    file.seek(0)
    assert torch.load(file).tolist() == [7.0, 8.0, 9.0, 10.0, 11.0]
