"""torch.autocast("neuron"): the key is there, with CUDA's lists."""

import pytest
import torch


def test_the_default_is_bfloat16():
    assert torch.get_autocast_dtype("neuron") == torch.bfloat16
    assert torch.amp.is_autocast_available("neuron")


def test_the_context_sets_the_state():
    assert not torch.is_autocast_enabled("neuron")
    with torch.autocast("neuron", dtype=torch.float16):
        assert torch.is_autocast_enabled("neuron")
        assert torch.get_autocast_dtype("neuron") == torch.float16
    assert not torch.is_autocast_enabled("neuron")


def test_other_dtypes_are_refused():
    with pytest.warns(UserWarning, match="target dtype is not supported"), torch.autocast("neuron", dtype=torch.int32):
        pass


@pytest.mark.parametrize(
    ("op", "dtype"),
    [
        (lambda a, b: a @ b, torch.bfloat16),
        (lambda a, b: torch.nn.functional.linear(a, b), torch.bfloat16),
        (lambda a, b: a + b, torch.float32),
        (lambda a, b: torch.exp(a.bfloat16()), torch.float32),
        (lambda a, b: torch.softmax(a.bfloat16(), 0), torch.float32),
        (lambda a, b: torch.addcmul(a, a, b.bfloat16()), torch.float32),
    ],
    ids=["matmul", "linear", "add", "exp", "softmax", "addcmul"],
)
def test_ops_follow_their_list(op, dtype):
    a, b = (torch.ones(2, 2, device="neuron") for _ in range(2))
    with torch.autocast("neuron"):
        assert op(a, b).dtype == dtype


def test_binary_cross_entropy_is_banned():
    a, b = (torch.ones(2, device="neuron") for _ in range(2))
    with torch.autocast("neuron"), pytest.raises(RuntimeError, match="unsafe to autocast"):
        torch.nn.functional.binary_cross_entropy(a, b)


def test_custom_functions():
    class Double(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type="neuron", cast_inputs=torch.float32)
        def forward(ctx, x):
            return x * 2

        @staticmethod
        @torch.amp.custom_bwd(device_type="neuron")
        def backward(ctx, gradient):
            return gradient * 2

    x = torch.ones(2, dtype=torch.bfloat16, device="neuron", requires_grad=True)
    with torch.autocast("neuron"):
        result = Double.apply(x)
    result.sum().backward()
    assert result.dtype == torch.float32 and x.grad.tolist() == [2.0, 2.0]


def test_grad_scaler():
    parameter = torch.nn.Parameter(torch.ones(2, device="neuron"))
    optimizer = torch.optim.SGD([parameter], lr=0.5)
    scaler = torch.amp.GradScaler("neuron", init_scale=4.0)
    scaler.scale(parameter.sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert parameter.tolist() == [0.5, 0.5]
