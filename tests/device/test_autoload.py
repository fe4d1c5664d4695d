"""`import torch` brings the device, starts nothing, and survives whatever is wrong with us."""

import sys

import pytest
import torch

import torch_neuronx

WORKS = "import torch; print('count', torch.neuron.device_count(), torch.empty(2, device='neuron').device)"


def test_import_torch_registers_the_device(python, entry_point):
    assert "count 1 neuron:0" in python(WORKS, entry_point)


def test_import_starts_nothing(python, entry_point):
    code = "import sys, torch; print('started', torch.neuron.is_initialized(), 'jaxlib' in sys.modules)"
    assert "started False False" in python(code, entry_point)


def test_autoload_can_be_switched_off(python, entry_point):
    code = (
        "import torch; print('before', hasattr(torch, 'neuron'))\n"
        "import torch_neuronx; print('after', torch.neuron.is_available())"
    )
    out = python(code, entry_point, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert "before False" in out and "after True" in out


def test_importing_our_package_first_registers_too(python, entry_point):
    assert "count 1 neuron:0" in python("import torch_neuronx\n" + WORKS, entry_point)


def test_registering_again_changes_nothing():
    torch_neuronx._autoload.register()
    assert torch.neuron.is_available()


UNAVAILABLE = """
print("available", torch.neuron.is_available(), torch.neuron.device_count(), torch.ones(2).sum().item())
torch.manual_seed(0)
try:
    torch.neuron.current_device()
except RuntimeError as error:
    print("error:", error)
"""


def test_a_wrong_torch_is_refused_with_a_warning(python):
    code = "import torch; torch.__version__ = '2.12.1'\nimport torch_neuronx\n" + UNAVAILABLE
    out = python(code, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert "RuntimeWarning: the neuron device is not available" in out
    assert "available False 0 2.0" in out
    assert "error: the neuron device is not available: torchneuron was built for torch 2.13" in out
    assert "Install torch==2.13.*" in out


def test_aws_own_distribution_is_refused(python, entry_point):
    info = entry_point / "torch_neuronx-2.9.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: torch-neuronx\nVersion: 2.9.0\n")
    out = python("import torch\n" + UNAVAILABLE, entry_point)
    assert "AWS's torch-neuronx 2.9.0 is installed beside torchneuron" in out
    assert "available False 0 2.0" in out
    assert "pip uninstall torch-neuronx" in out


def test_a_core_that_does_not_load_is_only_a_warning(python):
    code = "import sys; sys.modules['torch_neuronx._C'] = None\nimport torch, torch_neuronx\n" + UNAVAILABLE
    out = python(code, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert "the C++ core could not be loaded" in out
    assert "available False 0 2.0" in out


NAMES = """
is_available device_count current_device set_device synchronize current_stream Stream stream Event empty_cache
memory_allocated memory_reserved max_memory_allocated max_memory_reserved memory_stats reset_peak_memory_stats
reset_accumulated_memory_stats memory_snapshot get_device_properties get_device_capability get_device_name
is_bf16_supported manual_seed manual_seed_all get_rng_state get_rng_state_all set_rng_state set_rng_state_all
initial_seed seed seed_all _lazy_init init is_initialized _is_in_bad_fork get_amp_supported_dtype default_generators
device device_of StreamContext default_stream set_stream mem_get_info memory_summary amp random
"""


@pytest.mark.parametrize("name", NAMES.split())
def test_the_device_module_has(name):
    assert hasattr(torch.neuron, name)


def test_everything_public_exists():
    assert all(hasattr(torch.neuron, name) for name in torch.neuron.__all__)


def test_unknown_names_say_so():
    with pytest.raises(AttributeError, match=r"'torch.neuron' has no attribute 'nothing'"):
        torch.neuron.nothing  # noqa: B018


def test_the_device_module_can_be_imported():
    assert sys.modules["torch.neuron"] is torch.neuron


@pytest.mark.parametrize("owner", [torch.Tensor, torch.nn.Module, torch.UntypedStorage, torch.TypedStorage])
def test_methods_are_generated(owner):
    assert hasattr(owner, "neuron")


def test_tensors_say_where_they_are():
    assert torch.empty(1, device="neuron").is_neuron
    assert not torch.empty(1).is_neuron
