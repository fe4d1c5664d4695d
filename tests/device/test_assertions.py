"""torch._assert_async: checked on the device, raised when the program waits."""

import pytest
import torch


@pytest.mark.parametrize("value", [1.0, float("nan"), True, 3], ids=str)
def test_holds(value):
    torch._assert_async(torch.tensor([value], device="neuron"), "not seen")
    torch.neuron.synchronize()


@pytest.mark.parametrize("value", [0.0, -0.0, False, 0], ids=str)
def test_fails_with_its_message(value):
    torch._assert_async(torch.tensor([value], device="neuron"), "the learning rate is zero")
    with pytest.raises(RuntimeError, match="the learning rate is zero"):
        torch.neuron.synchronize()


def test_without_a_message():
    torch._assert_async(torch.zeros((), device="neuron"))
    with pytest.raises(RuntimeError, match="Expected Tensor with single nonzero value, but got zero"):
        torch.neuron.synchronize()
