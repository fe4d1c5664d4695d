"""Views run nothing: sizes, strides and offsets are torch's own, and the storage is shared."""

import pytest
import torch

VIEWS = {
    "view": lambda t: t.view(4, 6),
    "view -1": lambda t: t.view(-1),
    "reshape": lambda t: t.reshape(2, 12),
    "transpose": lambda t: t.transpose(0, 2),
    "permute": lambda t: t.permute(2, 0, 1),
    "select": lambda t: t[1],
    "slice": lambda t: t[:, 1:],
    "step": lambda t: t[..., ::2],
    "narrow": lambda t: t.narrow(2, 1, 2),
    "expand": lambda t: t[:, :1].expand(2, 5, 4),
    "unsqueeze": lambda t: t.unsqueeze(1),
    "squeeze": lambda t: t[:1].squeeze(0),
    "unfold": lambda t: t.unfold(2, 2, 1),
    "diagonal": lambda t: t.diagonal(0, 1, 2),
    "as_strided": lambda t: t.as_strided((3, 3), (1, 2), 2),
    "flatten": lambda t: t.flatten(1),
    "unflatten": lambda t: t.unflatten(2, (2, 2)),
    "chunk": lambda t: t.chunk(2, 1)[1],
    "split": lambda t: t.split(2, 2)[1],
    "unbind": lambda t: t.unbind(1)[2],
    "movedim": lambda t: t.movedim(0, 1),
    "detach": lambda t: t.detach(),
    "alias": lambda t: torch.ops.aten.alias(t),
    "view dtype": lambda t: t.view(torch.int32),
    "view smaller dtype": lambda t: t.view(torch.int16),
    "view as complex": lambda t: torch.view_as_complex(t.view(2, 3, 2, 2)),
    "mT": lambda t: t.mT,
}


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_is_what_the_cpu_has(name):
    ours, theirs = torch.empty(2, 3, 4, device="neuron"), torch.empty(2, 3, 4)
    view, expected = VIEWS[name](ours), VIEWS[name](theirs)
    assert (view.shape, view.stride(), view.storage_offset(), view.dtype) == (
        expected.shape,
        expected.stride(),
        expected.storage_offset(),
        expected.dtype,
    )
    assert view.untyped_storage().data_ptr() == ours.untyped_storage().data_ptr()
    assert view.device == ours.device


def test_view_as_real():
    complex_tensor = torch.empty(3, dtype=torch.complex64, device="neuron")
    real = torch.view_as_real(complex_tensor)
    assert real.shape == (3, 2) and real.dtype == torch.float32
    assert real.untyped_storage().data_ptr() == complex_tensor.untyped_storage().data_ptr()


def test_views_allocate_nothing():
    tensor = torch.empty(2, 3, 4, device="neuron")
    before = torch.neuron.memory_stats()["allocation.all.allocated"]
    for make in VIEWS.values():
        make(tensor)
    assert torch.neuron.memory_stats()["allocation.all.allocated"] == before


def test_a_view_that_cannot_be_is_refused():
    with pytest.raises(RuntimeError, match="not compatible with input tensor's size and stride"):
        torch.empty(4, 6, device="neuron").t().view(24)
    with pytest.raises(RuntimeError, match="invalid for input of size 24"):
        torch.empty(4, 6, device="neuron").view(5, 5)
    with pytest.raises(RuntimeError, match="out of bounds for storage"):
        torch.empty(4, device="neuron").as_strided((10,), (1,))


def test_is_set_to():
    tensor = torch.empty(4, device="neuron")
    assert tensor.is_set_to(tensor.view(4))
    assert not tensor.is_set_to(tensor[1:])
