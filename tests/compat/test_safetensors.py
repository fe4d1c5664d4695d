"""safetensors reads straight onto the device, and costs nothing until it is used."""

import pytest
import torch

safetensors_torch = pytest.importorskip("safetensors.torch", reason="safetensors is not installed")


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "weights.safetensors"
    safetensors_torch.save_file({"a": torch.arange(6.0).view(2, 3), "b": torch.ones(1)}, path, metadata={"k": "v"})
    return path


@pytest.mark.parametrize("device", ["neuron", "neuron:0", torch.device("neuron")], ids=repr)
def test_load_file(file, device):
    loaded = safetensors_torch.load_file(file, device=device)
    assert loaded["a"].device == torch.device("neuron:0") and loaded["a"].tolist() == [[0, 1, 2], [3, 4, 5]]


def test_safe_open(file):
    import safetensors

    with safetensors.safe_open(file, framework="pt", device="neuron") as opened:
        assert sorted(opened.keys()) == ["a", "b"] and opened.metadata() == {"k": "v"}
        assert opened.get_tensor("b").device.type == "neuron"
        part = opened.get_slice("a")
        assert part.get_shape() == [2, 3] and part[:, 1:].tolist() == [[1, 2], [4, 5]]
        assert part[:1].device.type == "neuron"


def test_other_devices_are_left_alone(file):
    import safetensors

    with safetensors.safe_open(file, framework="pt") as opened:
        assert opened.get_tensor("b").device.type == "cpu"
        assert type(opened).__module__ == "builtins"
    assert safetensors_torch.load_file(file)["b"].device.type == "cpu"


def test_save_file(tmp_path):
    safetensors_torch.save_file({"x": torch.ones(2, device="neuron")}, tmp_path / "out")
    assert safetensors_torch.load_file(tmp_path / "out")["x"].tolist() == [1.0, 1.0]


def test_it_is_not_imported_for_nothing(python, entry_point):
    code = "import sys, torch; print('imported', 'safetensors' in sys.modules)"
    assert "imported False" in python(code, entry_point)


def test_it_may_be_imported_before(python):
    code = "import safetensors.torch, torch, torch_neuronx; print(safetensors.torch.safe_open.knows_neuron)"
    assert "True" in python(code, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
