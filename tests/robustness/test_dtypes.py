"""What the CPU refuses is refused, in its words: no value that torch would not give."""

import pytest
import torch

D = "neuron"
INT, BOOL, FLOAT, COMPLEX = torch.int64, torch.bool, torch.float32, torch.complex64


def ones(dtype: torch.dtype, device: str) -> torch.Tensor:
    return torch.ones(3, dtype=dtype, device=device)


CALLS = {
    "int *= 0.5": lambda d: ones(INT, d).mul_(0.5),
    "bool *= 2": lambda d: ones(BOOL, d).mul_(2),
    "int logit_": lambda d: ones(INT, d).logit_(),
    "int div_": lambda d: ones(INT, d).div_(2),
    "float += complex": lambda d: ones(FLOAT, d).add_(1j),
    "foreach int *= 0.5": lambda d: torch._foreach_mul_([ones(INT, d)], 0.5),
    "out= of int": lambda d: torch.add(ones(FLOAT, d), 1, out=ones(INT, d)),
    "1 - bool": lambda d: 1 - ones(BOOL, d),
    "float - bool": lambda d: 1.5 - ones(BOOL, d),
    "bool - bool": lambda d: ones(BOOL, d) - ones(BOOL, d),
    "-bool": lambda d: -ones(BOOL, d),
    "bool abs_": lambda d: ones(BOOL, d).abs_(),
    "complex %": lambda d: ones(COMPLEX, d) % 2,
    "complex fmod_": lambda d: ones(COMPLEX, d).fmod_(1.5),
    "complex remainder_": lambda d: ones(COMPLEX, d).remainder_(1.5),
    "complex relu_": lambda d: ones(COMPLEX, d).relu_(),
    "complex sign": lambda d: ones(COMPLEX, d).sign(),
    "complex clamp_": lambda d: ones(COMPLEX, d).clamp_(1),
    "complex <": lambda d: ones(COMPLEX, d) < 1,
    "complex hypot_": lambda d: ones(COMPLEX, d).hypot_(ones(COMPLEX, d)),
    "complex atan2_": lambda d: ones(COMPLEX, d).atan2_(ones(COMPLEX, d)),
    "float &": lambda d: ones(FLOAT, d) & 1,
    "float <<": lambda d: ones(COMPLEX, d) << 1,
}


@pytest.mark.parametrize("name", CALLS)
def test_refused_as_on_the_cpu(name):
    with pytest.raises((RuntimeError, NotImplementedError, TypeError)) as expected:
        CALLS[name]("cpu")
    with pytest.raises(expected.type):
        CALLS[name](D)


TAKEN = {
    "half on a device": lambda d: ones(torch.float16, d).mul_(2),
    "int /= to float": lambda d: ones(INT, d) / 2,
    "float < to float": lambda d: ones(FLOAT, d).lt_(2),
    "bool += bool": lambda d: ones(BOOL, d).add_(ones(BOOL, d)),
    "int += bool": lambda d: ones(INT, d).add_(ones(BOOL, d)),
    "0-d float does not promote": lambda d: ones(FLOAT, d).mul_(torch.tensor(2.0, dtype=torch.float64, device=d)),
    "out= of a wider dtype": lambda d: torch.add(ones(FLOAT, d), 1, out=ones(torch.float64, d)),
}


@pytest.mark.parametrize("name", TAKEN)
def test_taken_as_on_the_cpu(name):
    expected, got = TAKEN[name]("cpu"), TAKEN[name](D)
    assert got.dtype == expected.dtype
    torch.testing.assert_close(got.cpu(), expected)


def test_class_indices_of_eight_bits():
    x, classes = torch.randn(3, 4), torch.tensor([0, 1, 3], dtype=torch.uint8)
    on_device = x.to(D).requires_grad_()
    loss = torch.nn.functional.cross_entropy(on_device, classes.to(D))
    torch.testing.assert_close(loss.cpu(), torch.nn.functional.cross_entropy(x, classes))
    loss.backward()
    assert on_device.grad is not None and on_device.grad.shape == (3, 4)
    with pytest.raises(RuntimeError, match="expected class indices of dtype int64 or uint8"):
        torch.nn.functional.cross_entropy(on_device, classes.to(D, torch.int32))
