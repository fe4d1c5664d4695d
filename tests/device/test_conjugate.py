"""Lazy conjugation and negation: clone and copy_ see the bits, every other op a resolved tensor."""

from __future__ import annotations

import torch

X = torch.tensor([1 + 2j, -3 + 0.5j, 0 - 1j], dtype=torch.complex64)
CONJUGATED = torch.conj_physical(X)


def on_device():
    return X.to("neuron")


def test_reading():
    y = on_device().conj()
    assert y.is_conj()
    for out in (y, y.clone(), y.resolve_conj(), y + 0, y.contiguous()):
        assert torch.equal(out.cpu().resolve_conj(), CONJUGATED)
    assert torch.equal(y.imag.cpu(), CONJUGATED.imag)
    assert torch.equal(y.imag.clone().cpu(), CONJUGATED.imag)
    assert torch.equal(X.conj().to("neuron").cpu(), CONJUGATED)


def test_writing():
    for source in (X, on_device()):
        z = torch.zeros(3, dtype=torch.complex64, device="neuron")
        z.conj().copy_(source)
        assert torch.equal(z.cpu(), CONJUGATED)
    host = torch.zeros(3, dtype=torch.complex64)
    host.conj().copy_(on_device())
    assert torch.equal(host, CONJUGATED)
    n = torch.zeros(3, device="neuron")
    torch._neg_view(n).copy_(torch.ones(3))
    assert torch.equal(n.cpu(), -torch.ones(3))
    z = torch.zeros(2, dtype=torch.complex64, device="neuron")
    z.conj().imag.fill_(2)
    assert torch.equal(z.cpu(), torch.full((2,), -2j))


def test_gradient_of_a_product():
    a, b = X.clone().requires_grad_(), on_device().requires_grad_()
    (a * a.sin()).abs().sum().backward()
    (b * b.sin()).abs().sum().backward()
    assert torch.allclose(a.grad, b.grad.cpu())
