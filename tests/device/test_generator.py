"""Generators: a seed and a counter."""

import pytest
import torch


@pytest.fixture(autouse=True)
def same_state_after():
    state = torch.neuron.get_rng_state()
    yield
    torch.neuron.set_rng_state(state)


def seed_and_offset(state):
    return state.view(torch.int64).tolist()


def test_manual_seed_reaches_the_device():
    torch.manual_seed(1234)
    assert torch.neuron.initial_seed() == 1234
    assert seed_and_offset(torch.neuron.get_rng_state()) == [1234, 0]


def test_seeding_starts_nothing(python):
    code = "import torch, torch_neuronx; torch.manual_seed(1); print('started', torch.neuron.is_initialized())"
    assert "started False" in python(code)


def test_state_is_sixteen_bytes():
    state = torch.neuron.get_rng_state()
    assert (state.dtype, state.device.type, state.numel()) == (torch.uint8, "cpu", 16)


def test_state_can_be_put_back():
    torch.neuron.manual_seed(7)
    state = torch.neuron.get_rng_state()
    torch.neuron.seed()
    assert torch.neuron.initial_seed() != 7
    torch.neuron.set_rng_state(state)
    assert torch.neuron.initial_seed() == 7
    torch.neuron.set_rng_state_all(torch.neuron.get_rng_state_all())


def test_bad_states_are_refused():
    with pytest.raises(RuntimeError, match="wrong size"):
        torch.neuron.set_rng_state(torch.zeros(5, dtype=torch.uint8))
    with pytest.raises(TypeError, match="ByteTensor"):
        torch.neuron.set_rng_state(torch.zeros(4))


def test_own_generators():
    generator = torch.Generator("neuron")
    assert generator.device == torch.device("neuron:0")
    generator.manual_seed(5)
    assert generator.initial_seed() == 5
    clone = generator.clone_state()
    assert clone.initial_seed() == 5
    clone.manual_seed(6)
    assert generator.initial_seed() == 5
    generator.set_offset(8)
    assert generator.get_offset() == 8 and seed_and_offset(generator.get_state()) == [5, 8]


def test_negative_and_huge_seeds():
    torch.neuron.manual_seed(-1)
    assert torch.neuron.initial_seed() == 2**64 - 1


def test_default_generators():
    assert len(torch.neuron.default_generators) == torch.neuron.device_count()
    assert torch.neuron.default_generators[0].device.type == "neuron"
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        torch.neuron.get_rng_state(99)


def test_seed_all():
    assert torch.neuron.seed_all() == torch.neuron.initial_seed()


def test_fork_rng():
    torch.neuron.manual_seed(3)
    with torch.random.fork_rng(device_type="neuron"):
        torch.neuron.manual_seed(4)
    assert torch.neuron.initial_seed() == 3


def test_each_device_has_its_own(python):
    code = """
import torch, torch_neuronx
torch.manual_seed(1)
torch.neuron.set_device(1)
torch.neuron.manual_seed(2)
print("seeds", [generator.initial_seed() for generator in torch.neuron.default_generators])
print(torch.Generator("neuron").device, torch.Generator("neuron:0").device)
"""
    out = python(code, TORCH_NEURONX_HOST_DEVICES="2")
    assert "seeds [1, 2]" in out and "neuron:1 neuron:0" in out


def test_random_numbers_use_the_state():
    torch.manual_seed(0)
    first = torch.rand(4, device="neuron").cpu()
    second = torch.rand(4, device="neuron").cpu()
    torch.manual_seed(0)
    assert torch.equal(first, torch.rand(4, device="neuron").cpu())
    assert not torch.equal(first, second)
