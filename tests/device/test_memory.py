"""Counts of device memory, the cap on it, and pinned memory on the host."""

import gc

import pytest
import torch


@pytest.fixture(autouse=True)
def clean():
    gc.collect()
    torch.neuron.reset_peak_memory_stats()
    torch.neuron.reset_accumulated_memory_stats()


def test_allocated_follows_tensors():
    before = torch.neuron.memory_allocated()
    tensor = torch.empty(1000, device="neuron")
    assert torch.neuron.memory_allocated() - before == 4032  # rounded up to 64
    view = tensor[1:]
    del tensor
    assert torch.neuron.memory_allocated() - before == 4032
    del view
    assert torch.neuron.memory_allocated() == before


def test_peak():
    before = torch.neuron.memory_allocated()
    del_me = torch.empty(1 << 20, dtype=torch.uint8, device="neuron")
    del del_me
    assert torch.neuron.max_memory_allocated() - before == 1 << 20
    torch.neuron.reset_peak_memory_stats()
    assert torch.neuron.max_memory_allocated() == torch.neuron.memory_allocated()


def test_totals():
    torch.empty(1 << 20, dtype=torch.uint8, device="neuron")
    stats = torch.neuron.memory_stats()
    assert stats["allocated_bytes.large_pool.allocated"] == stats["allocated_bytes.large_pool.freed"] == 1 << 20
    assert stats["allocation.small_pool.allocated"] == 0
    assert stats["requested_bytes.all.allocated"] == 1 << 20


def test_reserved_allocated_active_are_ordered():
    keep = torch.empty(100, device="neuron")
    stats = torch.neuron.memory_stats()
    reserved, allocated, active = (stats[f"{k}_bytes.all.current"] for k in ("reserved", "allocated", "active"))
    assert reserved >= allocated >= active >= keep.nbytes


def test_nested_dict_and_summary():
    assert torch.neuron.memory_stats_as_nested_dict()["allocated_bytes"]["all"]["current"] >= 0
    summary = torch.neuron.memory_summary()
    assert "Allocated memory" in summary and "large pool" in summary
    assert "large pool" not in torch.neuron.memory_summary(abbreviated=True)


def test_accelerator_memory_api():
    keep = torch.empty(100, device="neuron")
    assert torch.accelerator.memory_allocated() == torch.neuron.memory_allocated() >= keep.nbytes
    assert torch.accelerator.max_memory_reserved() == torch.neuron.max_memory_reserved()
    assert torch.accelerator.memory_stats()["allocated_bytes.all.current"] == torch.neuron.memory_allocated()
    torch.accelerator.empty_cache()
    torch.accelerator.reset_peak_memory_stats()
    free, total = torch.accelerator.get_memory_info()
    assert 0 < free <= total


def test_mem_get_info():
    free, total = torch.neuron.mem_get_info()
    assert 0 < free <= total == torch.neuron.get_device_properties().total_memory
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        torch.neuron.mem_get_info(99)


def test_snapshot_lists_live_buffers():
    tensor = torch.empty(123, device="neuron")
    addresses = {segment["address"]: segment for segment in torch.neuron.memory_snapshot()}
    assert addresses[tensor.data_ptr()]["total_size"] == 492
    assert addresses[tensor.data_ptr()]["blocks"][0]["written"] is False


LIMITED = """
import torch, torch_neuronx
print("total", torch.neuron.mem_get_info()[1])
keep = torch.empty(700, dtype=torch.uint8, device="neuron")
try:
    torch.empty(400, dtype=torch.uint8, device="neuron")
except torch.OutOfMemoryError as error:
    print("oom", error)
print("counters", torch.neuron.memory_stats()["num_ooms"], torch.neuron.memory_stats()["num_alloc_retries"])
del keep
print("again", torch.empty(400, dtype=torch.uint8, device="neuron").numel())
"""


def test_the_limit(python):
    out = python(LIMITED, TORCH_NEURONX_HOST_MEMORY_LIMIT="1K")
    assert "total 1024" in out
    assert "requested_size=400" in out and "limit=1024" in out and "in_use=704" in out
    assert "raise the limit with TORCH_NEURONX_HOST_MEMORY_LIMIT" in out
    assert "counters 1 1" in out and "again 400" in out


@pytest.mark.parametrize(("text", "size"), [("2G", 2 << 30), ("3MiB", 3 << 20), ("1.5k", 1536), ("100", 100)])
def test_sizes_can_be_written_in_many_ways(python, text, size):
    code = "import torch, torch_neuronx; print('total', torch.neuron.mem_get_info()[1])"
    assert f"total {size}" in python(code, TORCH_NEURONX_HOST_MEMORY_LIMIT=text)


@pytest.mark.parametrize("text", ["lots", "-5", "0", "4X", "nan"])
def test_a_limit_that_makes_no_sense(python, text):
    code = """
import torch, torch_neuronx
try:
    torch.empty(1, device="neuron")
except ValueError as error:
    print("refused", error)
"""
    assert f"refused TORCH_NEURONX_HOST_MEMORY_LIMIT='{text}' is not a size" in python(
        code, TORCH_NEURONX_HOST_MEMORY_LIMIT=text
    )


def test_fraction():
    total = torch.neuron.mem_get_info()[1]
    torch.neuron.set_per_process_memory_fraction(0.5)
    try:
        assert abs(torch.neuron.mem_get_info()[1] - total / 2) <= 1
        assert torch.neuron.get_per_process_memory_fraction() == 0.5
    finally:
        torch.neuron.set_per_process_memory_fraction(1.0)
    with pytest.raises(ValueError, match="above 0 and at most 1"):
        torch.neuron.set_per_process_memory_fraction(1.5)
    with pytest.raises(TypeError, match="expected a float"):
        torch.neuron.set_per_process_memory_fraction("half")


def test_memory_profiler_sees_allocations():
    with torch.profiler.profile(profile_memory=True) as profile:
        torch.empty(1 << 16, device="neuron")
    assert any("[memory]" in event.name for event in profile.events())


def test_pin_memory():
    tensor = torch.arange(10.0)
    pinned = tensor.pin_memory()
    assert pinned.is_pinned() and not tensor.is_pinned()
    assert torch.equal(pinned, tensor) and pinned.data_ptr() % 64 == 0
    assert pinned[3:].is_pinned()
    assert torch.empty(3, pin_memory=True).is_pinned()


def test_pinned_memory_is_used_again():
    first = torch.empty(1000, pin_memory=True)
    address = first.data_ptr()
    del first
    assert torch.empty(900, pin_memory=True).data_ptr() == address


def test_freed_pinned_memory_is_not_pinned():
    tensor = torch.empty(1000, pin_memory=True)
    storage_address = tensor.data_ptr()
    del tensor
    torch.accelerator.empty_host_cache() if hasattr(torch.accelerator, "empty_host_cache") else None
    assert storage_address


def test_a_data_loader_pins():
    data = torch.utils.data.TensorDataset(torch.arange(8.0))
    for (batch,) in torch.utils.data.DataLoader(data, batch_size=4, pin_memory=True, num_workers=1):
        assert batch.is_pinned()
        assert batch.to("neuron", non_blocking=True).cpu().shape == (4,)


def test_pinned_tensors_on_the_device_are_refused():
    with pytest.raises(RuntimeError, match="cannot pin"):
        torch.empty(3, device="neuron").pin_memory()
