"""A child forked after the runtime started must not use the device, and must not hang."""

FORK = """
import os, sys
import torch, torch_neuronx
{before}
child = os.fork()
if child == 0:
    try:
{inside}
        sys.stdout.flush()
    finally:
        os._exit(0)
_, status = os.waitpid(child, 0)
print("parent", status, torch.empty(1, device="neuron").device)
"""

MESSAGE = (
    "Cannot re-initialize neuron in forked subprocess. To use neuron with multiprocessing, you must use the 'spawn' "
    "start method"
)


def forked(python, before, *inside):
    lines = "\n".join(f"        {line}" for line in inside)
    out = python(FORK.format(before=before, inside=lines))
    assert "parent 0 neuron:0" in out
    return out


def refused(call):
    return f"try: {call}\n        except RuntimeError as error: print('refused', error)"


def test_the_device_is_refused_after_a_fork(python):
    out = forked(
        python,
        "keep = torch.empty(10, device='neuron')",
        "print('bad fork', torch.neuron._is_in_bad_fork())",
        refused("torch.empty(1, device='neuron')"),
        refused("torch.neuron.synchronize()"),
        refused("torch.neuron.init()"),
    )
    assert "bad fork True" in out
    assert out.count(f"refused {MESSAGE}") == 3


def test_tensors_may_be_freed_and_seeds_set(python):
    out = forked(
        python,
        "keep = torch.empty(10, device='neuron')",
        "del keep",
        "torch.manual_seed(1)",
        "print('sum', torch.ones(3).sum().item())",
    )
    assert "sum 3.0" in out


def test_a_fork_before_the_start_is_fine(python):
    out = forked(python, "", "print('child', torch.empty(1, device='neuron').device)")
    assert "child neuron:0" in out


def test_the_background_thread_is_not_missed(python):
    before = """
from torch_neuronx import _C
class Work:
    def block_until_ready(self): pass
torch.neuron.init()
_C.note_work(0, Work())
event = torch.neuron.Event(enable_timing=True)
event.record()
"""
    out = forked(python, before, "print('bad fork', torch.neuron._is_in_bad_fork())")
    assert "bad fork True" in out
