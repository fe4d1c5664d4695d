"""Transformers on neuron: loading, forward passes, generation, and what it asks of torch.neuron."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from accelerate.utils import is_neuron_available
from safetensors.torch import load_file
from transformers.utils import is_torch_bf16_gpu_available, is_torch_neuron_available

from tests.ecosystem import families
from tests.ecosystem.families import ALL, GENERATING, LLAMA, Family
from torch_neuronx import debug

each_family = pytest.mark.parametrize("family", ALL, ids=lambda family: family.name)


def _on_device(inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: value.to("neuron") for name, value in inputs.items()}


def test_transformers_and_accelerate_find_the_device() -> None:
    assert is_torch_neuron_available(check_device=True)
    assert is_torch_bf16_gpu_available()
    assert is_neuron_available(check_device=True)
    assert Accelerator().device.type == "neuron"


@each_family
def test_loaded_straight_onto_the_device_it_computes_what_the_cpu_does(family: Family, tmp_path: Path) -> None:
    model = family.build()
    model.save_pretrained(tmp_path)
    loaded = type(model).from_pretrained(tmp_path, device_map="neuron").eval()
    assert {p.device.type for p in (*loaded.parameters(), *loaded.buffers())} == {"neuron"}
    inputs = family.inputs()
    with torch.no_grad():
        got, want = loaded(**_on_device(inputs))[0], model(**inputs)[0]
    torch.testing.assert_close(got.cpu(), want, rtol=1e-5, atol=5e-6)


def test_a_default_device_is_where_a_model_is_loaded(tmp_path: Path) -> None:
    model = LLAMA.build()
    model.save_pretrained(tmp_path)
    with torch.device("neuron"):
        loaded = type(model).from_pretrained(tmp_path)
    assert loaded.device.type == "neuron"
    for name, value in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name].cpu(), value), name


def test_a_model_saved_from_the_device_opens_on_the_cpu(tmp_path: Path) -> None:
    model = LLAMA.build()
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    model.to("neuron").save_pretrained(tmp_path)
    reopened = type(model).from_pretrained(tmp_path).state_dict()
    assert reopened.keys() == weights.keys()
    assert all(torch.equal(reopened[name], value) for name, value in weights.items())


def test_safetensors_reads_a_checkpoint_onto_the_device(tmp_path: Path) -> None:
    model = LLAMA.build()
    model.save_pretrained(tmp_path)
    read = load_file(tmp_path / "model.safetensors", device="neuron")
    assert {value.device.type for value in read.values()} == {"neuron"}
    assert all(torch.equal(value.cpu(), model.state_dict()[name]) for name, value in read.items())


def _generate(model: Any, ids: torch.Tensor, tokens: int, **how: Any) -> torch.Tensor:
    ids = ids.to(model.device)
    settings = {"min_new_tokens": tokens, "max_new_tokens": tokens, "do_sample": False} | how
    return model.generate(ids, attention_mask=torch.ones_like(ids), **settings).cpu()


@pytest.mark.parametrize("family", GENERATING, ids=lambda family: family.name)
def test_greedy_generation_with_a_cache_gives_the_cpus_tokens(family: Family) -> None:
    ids = families.token_ids(length=5)
    want = _generate(family.build(), ids, tokens=4)
    assert torch.equal(_generate(family.build().to("neuron"), ids, tokens=4), want)


def test_with_a_static_cache_the_model_itself_compiles_for_one_token_only() -> None:
    """What still grows with the text is generate's own bookkeeping: joining tokens, reading the last one."""
    model, ids = LLAMA.build().to("neuron"), families.token_ids(length=5)
    obtained: list[int] = []

    def note(tokens: torch.Tensor, scores: torch.Tensor, **_: Any) -> torch.Tensor:
        counters = debug.counters()
        obtained.append(counters["compiled"] + counters["loaded"])
        return torch.zeros(len(tokens), dtype=torch.bool, device=tokens.device)

    static = {"cache_implementation": "static", "disable_compile": True}
    tokens = _generate(model, ids, tokens=10, stopping_criteria=[note], **static)
    assert torch.equal(tokens, _generate(LLAMA.build(), ids, tokens=10, **static))
    later = {after - before for before, after in itertools.pairwise(obtained[2:])}
    assert max(later) <= 5, obtained


def test_sampling_repeats_with_the_seed() -> None:
    model, ids = LLAMA.build().to("neuron"), families.token_ids(length=5)
    sampling = {"do_sample": True, "top_k": 20, "top_p": 0.95, "temperature": 1.5}
    drawn = []
    for seed in (7, 7, 8):
        torch.manual_seed(seed)
        drawn.append(_generate(model, ids, tokens=4, **sampling))
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])
