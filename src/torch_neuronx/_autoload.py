"""The `torch.backends` entry point: puts `neuron` into torch, never raises, starts nothing."""

from __future__ import annotations

import warnings
from importlib import metadata

import torch
from torch.utils import backend_registration

from torch_neuronx import device
from torch_neuronx.device import availability

TORCH_MINOR = "2.13"

_registered = False


def register() -> None:
    """Makes `neuron` a device of torch. Whatever goes wrong becomes a warning and `torch.neuron.is_available()`."""
    global _registered
    if _registered:
        return
    _registered = True
    reason = _obstacle()
    if reason is None:
        reason = _load_core()
    if reason is not None:
        availability.refuse(reason)
        warnings.warn(f"the neuron device is not available: {reason}", RuntimeWarning, stacklevel=2)
    try:
        _name_device(core_loaded=reason is None)
    except Exception as error:  # noqa: BLE001 - raising here would break `import torch` for everybody
        availability.refuse(f"torch refused the name 'neuron': {error}")
        warnings.warn(f"the neuron device is not available: {availability.reason()}", RuntimeWarning, stacklevel=2)


def _obstacle() -> str | None:
    """Why the core must not even be loaded, or None."""
    if not torch.__version__.startswith(TORCH_MINOR + "."):
        return (
            f"torchneuron was built for torch {TORCH_MINOR} and found torch {torch.__version__}, whose C++ interface "
            f"differs. Install torch=={TORCH_MINOR}.*, or a torchneuron release for your torch."
        )
    try:
        version = metadata.version("torch-neuronx")
    except metadata.PackageNotFoundError:
        return None
    return (
        f"AWS's torch-neuronx {version} is installed beside torchneuron, and both own the package torch_neuronx. "
        "Keep one: `pip uninstall torch-neuronx`, then reinstall torchneuron."
    )


def _load_core() -> str | None:
    try:
        from torch_neuronx import _C  # noqa: F401
    except Exception as error:  # noqa: BLE001 - a missing symbol is an ImportError, a bad static init is anything
        return f"the C++ core could not be loaded ({error}). Reinstall torchneuron, or run `make build`."
    return None


def _name_device(*, core_loaded: bool) -> None:
    backend_registration.rename_privateuse1_backend("neuron")
    torch._register_device_module("neuron", device)
    backend_registration.generate_methods_for_privateuse1_backend(for_storage=True)
    if core_loaded:
        from torch_neuronx import compat
        from torch_neuronx.compiler import cache_artifacts
        from torch_neuronx.device import shutdown

        shutdown.at_exit()
        cache_artifacts.register()
        compat.apply()
