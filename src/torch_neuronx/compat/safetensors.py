"""safetensors has a closed list of devices, and `neuron` is not on it: "device neuron is invalid".

safe_open and load_file then read on the CPU and move what is read. Done when safetensors is imported: it costs
nothing to those who do not use it.
"""

from __future__ import annotations

import sys
from types import ModuleType, TracebackType
from typing import Any

from torch_neuronx.compat.on_import import on_import

_NAME = "safetensors"


def apply() -> None:
    """Patches safetensors now, or as soon as it is imported."""
    on_import(_NAME, patch)


def patch(module: ModuleType) -> None:
    """Puts a safe_open that knows neuron in the place of safetensors' own, unless that knows it by now."""
    original = module.safe_open
    if getattr(original, "knows_neuron", False):
        return
    module.safe_open = _opener(original)  # type: ignore[attr-defined]
    for name, loaded in list(sys.modules.items()):
        if name.startswith(_NAME + ".") and getattr(loaded, "safe_open", None) is original:
            loaded.safe_open = module.safe_open  # type: ignore[attr-defined]


def _opener(original: Any) -> type:
    class safe_open(_OnCpu):  # noqa: N801 - stands in for safetensors.safe_open
        knows_neuron = True

        def __new__(cls, filename: Any, framework: str, device: Any = "cpu", **options: Any) -> Any:
            if not _is_neuron(device):
                return original(filename, framework, device=device, **options)
            opened = super().__new__(cls)
            opened.file = original(filename, framework, device="cpu", **options)
            opened.device = str(device)
            return opened

    return safe_open


def _is_neuron(device: Any) -> bool:
    return str(device).partition(":")[0] == "neuron"


class _OnCpu:
    """An open file whose tensors go to the device as they are read."""

    file: Any
    device: str

    def __enter__(self) -> _OnCpu:
        self.file.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.file.__exit__(kind, error, trace)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)  # keys, metadata, offset_keys

    def get_tensor(self, name: str) -> Any:
        return self.file.get_tensor(name).to(self.device)

    def get_tensors(self, *names: Any) -> dict[str, Any]:
        return {name: tensor.to(self.device) for name, tensor in self.file.get_tensors(*names).items()}

    def get_slice(self, name: str) -> _Slice:
        return _Slice(self.file.get_slice(name), self.device)


class _Slice:
    """A tensor of the file of which only the part asked for is read."""

    def __init__(self, lazy: Any, device: str) -> None:
        self._lazy = lazy
        self._device = device

    def __getitem__(self, index: Any) -> Any:
        return self._lazy[index].to(self._device)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._lazy, name)  # get_shape, get_dtype
