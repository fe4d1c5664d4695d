"""The current device of a thread, and several logical devices in one process."""

import pytest
import torch

TWO = {"TORCH_NEURONX_HOST_DEVICES": "2"}


def test_one_device_by_default():
    assert torch.neuron.device_count() >= 1
    assert torch.neuron.current_device() == 0


def test_accelerator_api():
    assert torch.accelerator.is_available()
    assert torch.accelerator.current_accelerator() == torch.device("neuron")
    assert torch.accelerator.device_count() == torch.neuron.device_count()
    assert torch.accelerator.current_device_index() == 0
    torch.accelerator.synchronize()


@pytest.mark.parametrize("device", [5000, "neuron:99", torch.device("neuron:99")], ids=str)
def test_a_device_that_is_not_there(device):
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        torch.neuron.set_device(device)


def test_negative_indices_change_nothing():
    torch.neuron.set_device(-1)
    with torch.neuron.device(-1):
        assert torch.neuron.current_device() == 0


@pytest.mark.parametrize("device", ["cpu", torch.device("cpu")], ids=repr)
def test_other_devices_are_refused(device):
    with pytest.raises(ValueError, match="expected a neuron device"):
        torch.neuron.set_device(device)


def test_things_that_are_no_device():
    with pytest.raises(TypeError, match="expected a device"):
        torch.neuron.set_device(1.5)
    with pytest.raises(TypeError, match="expected a device"):
        torch.neuron.set_device(None)


def test_two_devices(python):
    code = """
import threading
import torch
assert torch.neuron.device_count() == 2 == torch.accelerator.device_count()
assert torch.empty(1, device="neuron").device.index == 0
torch.neuron.set_device(1)
assert torch.empty(1, device="neuron").device.index == 1
assert torch.empty(1, device="neuron:0").device.index == 0
other = []
thread = threading.Thread(target=lambda: other.append(torch.neuron.current_device()))
thread.start(), thread.join()
assert other == [0], "each thread starts on device 0"
with torch.neuron.device(0):
    assert torch.neuron.current_device() == 0
with torch.neuron.device_of(torch.empty(1, device="neuron:0")):
    assert torch.neuron.current_device() == 0
with torch.neuron.device_of(torch.empty(1)):
    assert torch.neuron.current_device() == 1
with torch.accelerator.device_index(0):
    assert torch.neuron.current_device() == 0
try:
    with torch.neuron.device(0):
        raise KeyError
except KeyError:
    pass
assert torch.neuron.current_device() == 1
assert torch.empty_like(torch.empty(3, device="neuron:0")).device.index == 0
"""
    python("import torch_neuronx\n" + code, **TWO)


@pytest.mark.parametrize("count", ["0", "-1", "65", "two", "1.5"])
def test_a_count_that_makes_no_sense(python, count):
    code = """
import torch, torch_neuronx
print("available", torch.neuron.is_available(), torch.neuron.device_count())
try:
    torch.empty(1, device="neuron")
except Exception as error:
    print(type(error).__name__, error)
"""
    out = python(code, TORCH_NEURONX_HOST_DEVICES=count)
    assert "available False 0" in out
    assert f"TORCH_NEURONX_HOST_DEVICES='{count}' is not a number of devices" in out


def test_threads_do_not_share_the_current_device(python):
    code = """
import threading, torch, torch_neuronx
torch.neuron.set_device(1)
thread = threading.Thread(target=lambda: print("in the thread:", torch.neuron.current_device()))
thread.start()
thread.join()
print("here:", torch.neuron.current_device())
"""
    out = python(code, **TWO)
    assert "in the thread: 0" in out and "here: 1" in out


def test_properties():
    properties = torch.neuron.get_device_properties()
    assert properties.name == torch.neuron.get_device_name("neuron:0")
    assert properties.target == "host" and properties.total_memory > 2**20
    assert torch.neuron.get_device_capability() == (0, 0)
    assert torch.neuron.is_bf16_supported()
    with pytest.raises(AssertionError, match="invalid device ordinal"):
        torch.neuron.get_device_properties(99)
