"""Forward-mode AD: what a first call under a dual level may not break."""

from __future__ import annotations

import torch
from torch.autograd import forward_ad


def test_a_meta_kernel_that_prints_its_arguments_leaves_the_thread_usable() -> None:
    """aten.lerp_'s tries the overload with a number first, and the refusal prints the tensors."""
    x = torch.linspace(0, 1, 35, dtype=torch.float64, device="neuron").view(5, 7)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, torch.ones_like(x))
        out = forward_ad.unpack_dual(torch.quantile(dual, 0.3))
        again = forward_ad.unpack_dual(torch.quantile(forward_ad.make_dual(x, 2 * torch.ones_like(x)), 0.3))
    torch.testing.assert_close(out.primal.cpu(), torch.quantile(x.cpu(), 0.3))
    assert (out.tangent.item(), again.tangent.item()) == (1.0, 2.0)
