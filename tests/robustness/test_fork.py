"""In a forked child every use of the device is refused at once: nothing waits for threads that are not there."""

from __future__ import annotations

CHILD = """
import os, sys, threading
import torch, torch_neuronx

x = torch.ones(4, device="neuron")
y = x + 1
torch.neuron.synchronize()
child = os.fork()
if child == 0:
    for call in ("x + 1", "x.abs()", "x.add_(1)", "y.cpu()", "y.sum()", "y[0].item()", "print(y)", "y.tolist()",
                 "x.copy_(torch.zeros(4))", "torch.zeros(4).copy_(x)", "x.fill_(2)", "torch.ones(2, device='neuron')",
                 "torch.neuron.synchronize()", "bool(y[0] > 0)", "torch.rand(3, device='neuron')"):
        try:
            eval(call)
            print("RAN", call)
        except RuntimeError as error:
            print("refused" if "Cannot re-initialize neuron in forked subprocess" in str(error) else error, call)
    sys.stdout.flush()
    os._exit(0)
_, status = os.waitpid(child, 0)
print("child", status, "parent", (x + y).tolist())
"""

BUSY = """
import os, threading
import torch, torch_neuronx

x = torch.ones(64, 64, device="neuron")
done = False
def work():
    y = x
    while not done:
        y = (y @ x) / 64
thread = threading.Thread(target=work)
thread.start()
bad = 0
for _ in range(8):
    child = os.fork()
    if child == 0:
        try:
            x + 1
        except RuntimeError:
            os._exit(7)
        os._exit(1)
    bad += os.waitpid(child, 0)[1] != 7 << 8
done = True
thread.join()
print("bad", bad)
"""


def test_every_use_is_refused(python) -> None:
    out = python(CHILD)
    assert "child 0 parent [3.0, 3.0, 3.0, 3.0]" in out
    assert out.count("refused ") == 15, out


def test_a_fork_while_a_thread_works(python) -> None:
    assert "bad 0" in python(BUSY)
