"""One fresh process that prints what its start, or its first calls, cost: `python -m benchmarks.child TASK DEVICE`."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from functools import partial


def _seconds(run: Callable[[], object]) -> dict[str, float]:
    wall, processor = time.perf_counter(), time.process_time()
    run()
    return {"wall": time.perf_counter() - wall, "processor": time.process_time() - processor}


def import_torch(device: str) -> dict[str, dict[str, float]]:
    """Run with TORCH_DEVICE_BACKEND_AUTOLOAD=0: the autoload is then timed by itself."""

    def importing() -> None:
        import torch  # noqa: F401

    figures = {"import": _seconds(importing)}
    import torch

    if device == "neuron":
        figures["autoload"] = _seconds(torch._import_device_backends)
        if not hasattr(torch, "neuron"):
            raise SystemExit("the entry point of torch.backends was not found: install the package first")
    return figures


def first_result(device: str) -> dict[str, dict[str, float]]:
    import torch

    import torch_neuronx  # noqa: F401

    return {"first": _seconds(lambda: (torch.ones(4, device=device) + 1).cpu())}


def new_shape(device: str) -> dict[str, dict[str, float]]:
    """Two ops on a shape not seen before, in a process that has run others."""
    import torch

    import torch_neuronx  # noqa: F401
    from benchmarks.workloads import wait

    def two_ops(x: torch.Tensor) -> None:
        torch.tanh(x + x)
        wait(device)

    two_ops(torch.ones(7).to(device))
    inputs = [torch.ones(n).to(device) for n in range(1001, 1007)]
    return {f"shape {x.numel()}": _seconds(partial(two_ops, x)) for x in inputs}


def first_call(name: str) -> Callable[[str], dict[str, dict[str, float]]]:
    def run(device: str) -> dict[str, dict[str, float]]:
        import torch

        import torch_neuronx  # noqa: F401
        from benchmarks.workloads import NETWORKS

        torch.ones(4, device=device).cpu()
        workload = NETWORKS[name](device)
        return {"first": _seconds(workload)}

    return run


TASKS: dict[str, Callable[[str], dict[str, dict[str, float]]]] = {
    "import": import_torch,
    "first_result": first_result,
    "new_shape": new_shape,
    **{name: first_call(name) for name in ("mlp_step", "resnet18", "gpt2")},
}

if __name__ == "__main__":
    figures = TASKS[sys.argv[1]](sys.argv[2])
    print(json.dumps(figures))
