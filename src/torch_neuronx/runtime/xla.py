"""The runtime on jaxlib: the only module that touches jaxlib._jax, which is private API."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Final

import jaxlib
import numpy as np
import torch
from jaxlib import _jax, lapack, xla_client

from torch_neuronx.lowering.dtypes import numpy_dtype, storage_dtype
from torch_neuronx.runtime.protocol import LAPACK_PREFIX, Array, Capabilities, Executable, ResultType, Variant

TESTED: Final = ("0.10.2",)
# Emitters off: half the compile time at equal speed. Excess precision off: bf16 rounds as torch does.
COMPILE_OPTIONS: Final[tuple[tuple[str, Any], ...]] = (
    ("xla_cpu_use_fusion_emitters", False),
    ("xla_allow_excess_precision", False),
    ("xla_cpu_enable_fast_math", False),
)
# Without emitters LLVM guards each loop by a test that input and output do not overlap; in place they do, and the loop
# runs unvectorised, up to seven times slower.
IN_PLACE_OPTIONS: Final[tuple[tuple[str, Any], ...]] = (("xla_cpu_use_fusion_emitters", True),)
_IN_PLACE: Final = b"tf.aliasing_output"  # the attribute of an argument whose memory becomes a result's
_YNN: Final = "xla_cpu_experimental_ynn_fusion_type"
_YNN_PRODUCTS: Final = "LIBRARY_FUSION_TYPE_INDIVIDUAL_DOT,LIBRARY_FUSION_TYPE_INDIVIDUAL_CONVOLUTION"
# Each makes other code of most programs. jaxlib takes further options that change nothing: oneDNN, XNN, schedulers.
VARIANTS: Final = (
    Variant("reductions as loops", ((_YNN, _YNN_PRODUCTS),)),
    Variant("products by Eigen", ((_YNN, "LIBRARY_FUSION_TYPE_REDUCE"),)),
    Variant("wide vectors", (("xla_cpu_prefer_vector_width", 512),)),
    Variant("products on one thread", (("xla_cpu_multi_thread_eigen", False),)),
)


class UntestedVersion(RuntimeError):
    """jaxlib's private API is only known for the versions in TESTED."""


def check_version() -> None:
    version = jaxlib.__version__
    if version not in TESTED:
        raise UntestedVersion(
            f"torch_neuronx was tested with jaxlib {', '.join(TESTED)}, but {version} is installed. "
            f"Its private API may differ. Install one of the tested versions: pip install 'jaxlib=={TESTED[-1]}'"
        )


class _Sharding(_jax.SingleDeviceSharding):
    """batched_device_put asks for these two; jax's own subclass would need jax."""

    memory_kind = None

    def _to_xla_hlo_sharding(self, num_dimensions: int) -> Any:
        return xla_client.HloSharding.replicate()


class _Aval:
    """The abstract value array_result_handler wants."""

    __slots__ = ("dtype", "ndim", "shape", "sharding", "weak_type")

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype, sharding: _Sharding) -> None:
        self.shape, self.dtype, self.sharding = shape, dtype, sharding
        self.ndim, self.weak_type = len(shape), False


@cache
def _register_lapack() -> bool:
    # What xla_client.make_cpu_client does first; without it the targets wait in a list for ever.
    xla_client.register_custom_call_handler("cpu", _jax.register_custom_call_target)
    xla_client.register_custom_type_handler("cpu", _jax.register_custom_type)
    for name, capsule, *_ in _lapack_targets():
        xla_client.register_custom_call_target(name, capsule, "cpu", api_version=1)
    return True


def _lapack_targets() -> list[tuple[str, Any]]:
    registered = lapack.registrations()
    return [(name, target) for name, target, version in registered.get("cpu", []) if version == 1]


@cache
def _load_lapack() -> None:
    lapack._lapack.initialize()  # imports scipy's LAPACK, 0.1 s: only when a program calls it


class XlaRuntime:
    """A PJRT client and its devices."""

    def __init__(self, client: Any, *, host: bool, library_hash: str = "") -> None:
        check_version()
        _jax.set_tracebacks_enabled(False)  # each one costs microseconds a call
        self._client = client
        self._devices = client.local_devices()
        self._shardings = [_Sharding(d) for d in self._devices]
        self._host = host
        self._library_hash = library_hash
        if host:
            _register_lapack()

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            host_visible=self._host, serialises=True, donates=True, lapack=self._host, fixed_order=self._host
        )

    @property
    def fingerprint(self) -> str:
        device = self._devices[0]
        cpu = _cpu_features() if device.platform == "cpu" else ""
        engine = f"{self._client.platform_version}/{jaxlib.__version__}"
        return f"{device.platform}/{device.device_kind}/{engine}/{cpu}/{self._library_hash}"

    @property
    def options(self) -> tuple[tuple[str, Any], ...]:
        return (*COMPILE_OPTIONS, ("in_place", IN_PLACE_OPTIONS)) if self._host else ()

    def device_count(self) -> int:
        return len(self._devices)

    def variants(self, program: bytes) -> tuple[Variant, ...]:
        if not self._host:
            return ()
        name, emitters = ("loops without emitters", False) if _IN_PLACE in program else ("fusion emitters", True)
        return (Variant(name, (("xla_cpu_use_fusion_emitters", emitters),)), *VARIANTS)

    def _options(self, device: int, *, in_place: bool = False, variant: Variant | None = None) -> Any:
        options = _jax.CompileOptions()
        options.num_replicas = options.num_partitions = 1
        options.device_assignment = xla_client.DeviceAssignment.create(np.array([[self._devices[device].id]]))
        if self._host:
            options.env_option_overrides = [*COMPILE_OPTIONS, *(IN_PLACE_OPTIONS if in_place else ())]
        if variant is not None:
            options.env_option_overrides = [*options.env_option_overrides, *variant.options]
        return options

    def compile(
        self, program: bytes, device: int, results: Sequence[ResultType], variant: Variant | None = None
    ) -> Executable:
        if LAPACK_PREFIX in program:
            _load_lapack()
        options = self._options(device, in_place=_IN_PLACE in program, variant=variant)
        loaded = self._client.compile_and_load(program, [self._devices[device]], options)
        return self._wrap(loaded, device, results)

    def serialise(self, executable: Executable) -> bytes:
        return bytes(executable.loaded.serialize())

    def load(self, payload: bytes, device: int, results: Sequence[ResultType]) -> Executable:
        if LAPACK_PREFIX in payload:
            _load_lapack()
        devices = _jax.DeviceList((self._devices[device],))
        loaded = self._client.deserialize_executable(payload, devices, self._options(device))
        return self._wrap(loaded, device, results)

    def _wrap(self, loaded: Any, device: int, results: Sequence[ResultType]) -> Executable:
        handlers = tuple(self._handler(r.dtype, r.numel, device) for r in results)
        return Executable(loaded.execute_sharded, handlers, loaded)

    @lru_cache(maxsize=4096)  # noqa: B019  (the runtime lives as long as the process)
    def _handler(self, dtype: torch.dtype, numel: int | None, device: int) -> Any:
        aval = self._aval(dtype, numel, device)
        return xla_client.array_result_handler(aval, self._shardings[device], True, True)

    @lru_cache(maxsize=4096)  # noqa: B019
    def _aval(self, dtype: torch.dtype, numel: int | None, device: int) -> _Aval:
        array = numpy_dtype(storage_dtype(dtype))
        return _Aval(() if numel is None else (numel,), array, self._shardings[device])

    def put(self, array: np.ndarray, dtype: torch.dtype, device: int) -> Array:
        copy = xla_client.HostBufferSemantics.IMMUTABLE_ONLY_DURING_CALL
        aval = self._aval(dtype, array.size, device)
        target, sharding = self._devices[device], self._shardings[device]
        return xla_client.batched_device_put(aval, sharding, [array], [target], True, False, copy, True)

    def host_pointer(self, array: Array) -> int:
        """Waits first: after a failed execution the pointer exists but must not be used."""
        array.block_until_ready()
        return int(array.unsafe_buffer_pointer())

    def host_copy(self, array: Array) -> int:
        """The address of a host copy kept with the array, for targets whose memory the host cannot see."""
        if array._npy_value is None:
            # Not np.asarray: it knows no bfloat16, and its result refers back to the array, which then never dies.
            copy, _ = array._single_device_array_to_np_array_did_copy()
            array._npy_value = copy  # jaxlib's own slot for it, so the copy lives as long as the array
        return int(array._npy_value.ctypes.data)


@cache
def _cpu_features() -> str:
    """A hash of the CPU's feature flags: native code compiled for one CPU can trap on another."""
    try:
        with Path("/proc/cpuinfo").open(encoding="ascii", errors="replace") as info:
            flags = next((line for line in info if line.startswith(("flags", "Features"))), "")
    except OSError:
        flags = platform.processor()
    return hashlib.sha256(flags.encode()).hexdigest()[:16]


def host_runtime(devices: int) -> XlaRuntime:
    """XLA's CPU client inside this process, with `devices` logical devices."""
    return XlaRuntime(_jax.get_tfrt_cpu_client(asynchronous=True, num_devices=devices), host=True)


def plugin_runtime(library: Path) -> XlaRuntime:
    """A PJRT C-API plugin loaded from a shared library."""
    name = f"neuron_{library.stem}"
    try:
        if not xla_client.pjrt_plugin_loaded(name):
            xla_client.load_pjrt_plugin_dynamically(name, str(library))
        if not xla_client.pjrt_plugin_initialized(name):
            xla_client.initialize_pjrt_plugin(name)
        client = xla_client.make_c_api_client(name)
    except Exception as error:
        raise RuntimeError(
            f"the PJRT plugin {library} could not be started ({error}). Check that it exports GetPjrtApi and was built "
            "for this machine, or unset TORCH_NEURONX_PJRT_PLUGIN to run on the host CPU."
        ) from error
    # Plugins need not tell their builds apart, and an executable of another build can end the process.
    with library.open("rb") as file:
        library_hash = hashlib.file_digest(file, "sha256").hexdigest()
    return XlaRuntime(client, host=False, library_hash=library_hash)
