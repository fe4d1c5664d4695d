"""Ctrl-C at any moment of a first call: the next call works and is right."""

from __future__ import annotations

import signal

import pytest

from torch_neuronx.eager.interrupts import held_back

SCRIPT = """
import os, signal, threading
import torch, torch_neuronx

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job inherits that it is ignored

def interrupted(delay, call):
    timer = threading.Timer(delay, os.kill, (os.getpid(), signal.SIGINT))
    try:
        timer.start()
        result = call()
        timer.join()  # a signal that comes late comes here
        return result
    except KeyboardInterrupt:
        global count
        count += 1
    finally:
        timer.join()

def chain(n, device):
    y = torch.arange(float(n), device=device).add_(1)
    return y.sort(descending=True).values.softmax(0).cumsum(0).cpu()

count = 0
for delay in {delays}:
    interrupted(delay, lambda: torch.ones(3, device="neuron").sum().item())
for n in range(2, 14):
    interrupted(0.004 * n, lambda: chain(n, "neuron"))
    torch.testing.assert_close(chain(n, "neuron"), chain(n, "cpu"))
assert torch.ones(3, device="neuron").sum().item() == 3
assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
print("interrupted", count > 0, torch_neuronx.get_fallback_ops())
"""


def test_the_next_call_is_right(python) -> None:
    out = python(SCRIPT.format(delays=[0.05, 0.1, 0.3, 0.5]), TORCH_NEURONX_DISABLE_NEFF_CACHE="1")
    assert "interrupted True {}" in out


def test_a_second_interrupt_at_the_end_leaves_nothing_behind(monkeypatch) -> None:
    """It is delivered by the very call that puts the old handler back, before that changes anything."""
    install, pending = signal.signal, []
    before = signal.default_int_handler
    install(signal.SIGINT, before)

    def deliver_then_install(number, handler):
        if pending:
            pending.pop()
            signal.raise_signal(number)
        return install(number, handler)

    with pytest.raises(KeyboardInterrupt), held_back():
        signal.raise_signal(signal.SIGINT)
        pending.extend([None, None])
        monkeypatch.setattr(signal, "signal", deliver_then_install)
    assert signal.getsignal(signal.SIGINT) is before and not pending
