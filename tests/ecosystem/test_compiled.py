"""Transformers under torch.compile on neuron: values, gradients, caches, and the Trainer that compiles by itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf

import torch_neuronx
from tests.ecosystem import families
from tests.ecosystem.families import ALL, LLAMA, Family
from torch_neuronx import debug
from torch_neuronx.dynamo import metrics

each_family = pytest.mark.parametrize("family", ALL, ids=lambda family: family.name)


@pytest.fixture(autouse=True)
def _fresh() -> None:
    torch._dynamo.reset()
    metrics.clear()
    torch._dynamo.utils.counters.clear()


def _breaks() -> dict[str, int]:
    return dict(torch._dynamo.utils.counters["graph_break"])


@each_family
def test_compiled_it_computes_what_the_cpu_does_in_one_graph(family: Family) -> None:
    inputs = family.inputs()
    there, here = family.build().to("neuron"), family.build()
    compiled = torch.compile(there, backend="neuron", dynamic=False)
    with torch.no_grad():
        got, want = compiled(**{k: v.to("neuron") for k, v in inputs.items()})[0], here(**inputs)[0]
    torch.testing.assert_close(got.cpu(), want, rtol=1e-5, atol=5e-6)
    assert _breaks() == {}
    assert [m["executables"] for m in torch_neuronx.get_dynamo_metrics()] == [1]


def _generate(model: Any, ids: torch.Tensor, tokens: int, **how: Any) -> torch.Tensor:
    settings = {"min_new_tokens": tokens, "max_new_tokens": tokens, "do_sample": False} | how
    ids = ids.to(model.device)
    return model.generate(ids, attention_mask=torch.ones_like(ids), **settings).cpu()


def test_generate_compiles_by_itself_with_a_static_cache() -> None:
    ids = families.token_ids(length=5)
    want = _generate(LLAMA.build(), ids, 6)
    assert torch.equal(_generate(LLAMA.build().to("neuron"), ids, 6, cache_implementation="static"), want)
    records = torch_neuronx.get_dynamo_metrics()
    assert records
    assert all(m["fallback"] is None for m in records)
    assert sum(m["executables"] for m in records) <= 2


def test_a_growing_cache_is_padded_to_buckets() -> None:
    ids = families.token_ids(length=5)
    model = LLAMA.build().to("neuron")
    model.forward = torch.compile(model.forward, backend="neuron")
    assert torch.equal(_generate(model, ids, 14), _generate(LLAMA.build(), ids, 14))
    # the prompt, the first token, then 8, 16 and 24, each with room in the cache's storage and without
    assert sum(m["executables"] for m in torch_neuronx.get_dynamo_metrics()) <= 8


def test_sampling_with_the_cpus_numbers_gives_the_cpus_tokens() -> None:
    ids = families.token_ids(length=5)
    sampling = {"do_sample": True, "top_k": 20, "top_p": 0.95, "temperature": 1.5}
    here, there = LLAMA.build(), LLAMA.build().to("neuron")
    torch.manual_seed(7)
    want = _generate(here, ids, 4, **sampling)
    with debug.cpu_random():
        torch.manual_seed(7)
        got = _generate(there, ids, 4, **sampling)
    torch_neuronx.clear_op_tracking()  # cpu_random counts what it draws as fallbacks
    assert torch.equal(got, want)


def _losses(folder: Path, **settings: Any) -> torch.Tensor:
    data = [{"input_ids": ids, "labels": ids.sum() % 2} for ids in families.token_ids(rows=16)]
    arguments = hf.TrainingArguments(
        str(folder),
        max_steps=3,
        per_device_train_batch_size=8,
        learning_rate=1e-3,
        logging_steps=1,
        save_strategy="no",
        disable_tqdm=True,
        report_to=[],
        **settings,
    )
    hf.set_seed(0)
    trainer = hf.Trainer(families.classifier(), arguments, train_dataset=data)
    trainer.remove_callback(hf.PrinterCallback)
    trainer.train()
    return torch.tensor([entry["loss"] for entry in trainer.state.log_history if "loss" in entry])


def test_the_trainer_compiles_with_the_devices_backend(tmp_path: Path) -> None:
    losses = _losses(tmp_path / "neuron", torch_compile=True)
    kinds = {m["kind"] for m in torch_neuronx.get_dynamo_metrics()}
    assert {"forward", "backward"} <= kinds
    torch.testing.assert_close(losses, _losses(tmp_path / "cpu", use_cpu=True), rtol=1e-5, atol=0)
