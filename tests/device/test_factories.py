"""torch.empty and torch.empty_strided: sizes, strides, dtypes and devices as the CPU has them."""

import pytest
import torch

DTYPES = [
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.uint16,
    torch.uint32,
    torch.uint64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.complex64,
    torch.complex128,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_empty_has_the_size_of_its_dtype(dtype):
    tensor = torch.empty(3, 5, dtype=dtype, device="neuron")
    assert tensor.dtype == dtype
    assert tensor.untyped_storage().nbytes() == 15 * dtype.itemsize


@pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 4), (2, 0, 3), (2, 3, 4, 5)], ids=str)
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last], ids=str)
def test_strides_are_those_of_the_cpu(shape, memory_format):
    if memory_format == torch.channels_last and len(shape) != 4:
        with pytest.raises(RuntimeError, match="rank 4"):
            torch.empty(shape, memory_format=memory_format, device="neuron")
        return
    ours = torch.empty(shape, memory_format=memory_format, device="neuron")
    theirs = torch.empty(shape, memory_format=memory_format)
    assert (ours.shape, ours.stride(), ours.device) == (theirs.shape, theirs.stride(), torch.device("neuron:0"))


def test_channels_last_3d():
    ours = torch.empty(2, 3, 4, 5, 6, memory_format=torch.channels_last_3d, device="neuron")
    assert ours.is_contiguous(memory_format=torch.channels_last_3d)


def test_empty_strided_makes_room_for_its_span():
    tensor = torch.empty_strided((3, 2), (10, 1), device="neuron")
    assert tensor.stride() == (10, 1)
    assert tensor.untyped_storage().nbytes() == 22 * 4


def test_empty_like_and_new_empty():
    like = torch.empty(2, 3, 4, 5, device="neuron").to(memory_format=torch.contiguous_format)
    assert torch.empty_like(like, memory_format=torch.channels_last).stride() == (60, 1, 15, 3)
    assert like.new_empty(7).device.type == "neuron"
    assert torch.empty_permuted((2, 3), (1, 0), device="neuron").stride() == (1, 2)


def test_default_dtype_and_device():
    with torch.device("neuron"):
        assert torch.empty(1).device.type == "neuron"
    torch.set_default_dtype(torch.float64)
    try:
        assert torch.empty(1, device="neuron").dtype == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


def test_a_negative_size_is_refused():
    with pytest.raises(RuntimeError, match="negative dimension -1"):
        torch.empty(2, -1, device="neuron")
    with pytest.raises(RuntimeError, match="negative dimension -1"):
        torch.empty_strided((-1,), (1,), device="neuron")


def test_a_size_that_overflows_is_refused():
    with pytest.raises(RuntimeError, match="overflow"):
        torch.empty(2**40, 2**40, device="neuron")


def test_more_than_there_is_is_out_of_memory():
    with pytest.raises(torch.OutOfMemoryError, match=r"requested_size=.*limit=.*in_use=") as error:
        torch.empty(2**50, device="neuron")
    assert "TORCH_NEURONX_HOST_MEMORY_LIMIT" in str(error.value)


@pytest.mark.parametrize("dtype", [torch.qint8, torch.quint8, torch.qint32], ids=str)
def test_quantized_dtypes_are_refused(dtype):
    with pytest.raises(RuntimeError, match="no quantized tensors"):
        torch.empty(3, dtype=dtype, device="neuron")


def test_device_tensors_cannot_be_pinned():
    with pytest.raises(RuntimeError, match="Only dense CPU tensors can be pinned"):
        torch.empty(3, device="neuron", pin_memory=True)


def test_empty_of_another_layout():
    empty = torch.empty(3, 4, layout=torch.sparse_coo, device="neuron")
    assert empty.layout is torch.sparse_coo and empty.shape == (3, 4) and empty._nnz() == 0
    with pytest.raises((RuntimeError, NotImplementedError)):
        torch.empty(3, 3, layout=torch._mkldnn, device="neuron")


@pytest.mark.parametrize("index", [1, 63, 100])
def test_a_device_that_is_not_there(index):
    if index < torch.neuron.device_count():
        pytest.skip("this process has that device")
    with pytest.raises(RuntimeError, match=f"invalid device ordinal {index}: this process has"):
        torch.empty(1, device=f"neuron:{index}")


def test_every_storage_has_its_own_addresses():
    one, other = torch.empty(100, device="neuron"), torch.empty(100, device="neuron")
    assert one.data_ptr() % 64 == 0
    assert one[10:].data_ptr() == one.data_ptr() + 40
    assert abs(one.data_ptr() - other.data_ptr()) >= 400
