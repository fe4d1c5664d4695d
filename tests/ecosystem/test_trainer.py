"""Hugging Face's Trainer on neuron, beside the same training on the CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf

from tests.ecosystem import families

STEPS = 4


def _data() -> list[dict[str, torch.Tensor]]:
    return [{"input_ids": ids, "labels": ids.sum() % 2} for ids in families.token_ids(rows=32)]


def _trainer(folder: Path, *, on_cpu: bool, **settings: Any) -> hf.Trainer:
    arguments = hf.TrainingArguments(
        str(folder),
        max_steps=STEPS,
        per_device_train_batch_size=8,
        learning_rate=1e-3,
        logging_steps=1,
        save_steps=2,
        eval_strategy="steps",
        eval_steps=2,
        disable_tqdm=True,
        report_to=[],
        use_cpu=on_cpu,
        **settings,
    )
    hf.set_seed(0)
    data = _data()
    trainer = hf.Trainer(families.classifier(), arguments, train_dataset=data, eval_dataset=data[:16])
    trainer.remove_callback(hf.PrinterCallback)
    return trainer


def _history(trainer: hf.Trainer, *names: str) -> list[float]:
    return [entry[name] for entry in trainer.state.log_history for name in names if name in entry]


def _losses(folder: Path, *, on_cpu: bool = False, **settings: Any) -> torch.Tensor:
    trainer = _trainer(folder, on_cpu=on_cpu, **settings)
    assert trainer.args.device.type == ("cpu" if on_cpu else "neuron")
    trainer.train()
    return torch.tensor(_history(trainer, "loss", "eval_loss"))


@pytest.fixture(scope="module")
def cpu_losses(tmp_path_factory: pytest.TempPathFactory) -> torch.Tensor:
    return _losses(tmp_path_factory.mktemp("cpu"), on_cpu=True)


def test_losses_are_the_cpus(tmp_path: Path, cpu_losses: torch.Tensor) -> None:
    losses = _losses(tmp_path)
    assert len(losses) == STEPS + STEPS // 2
    torch.testing.assert_close(losses, cpu_losses, rtol=1e-5, atol=0)


def test_activation_checkpointing_changes_no_loss(tmp_path: Path, cpu_losses: torch.Tensor) -> None:
    losses = _losses(tmp_path, activation_checkpointing=True)
    torch.testing.assert_close(losses, cpu_losses, rtol=1e-5, atol=0)


def test_bfloat16_autocast_stays_close(tmp_path: Path, cpu_losses: torch.Tensor) -> None:
    torch.testing.assert_close(_losses(tmp_path, bf16=True), cpu_losses, rtol=1e-2, atol=0)


def test_a_run_resumed_from_a_checkpoint_goes_on_where_it_was(tmp_path: Path, cpu_losses: torch.Tensor) -> None:
    _losses(tmp_path)
    resumed = _trainer(tmp_path, on_cpu=False)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    assert resumed.state.global_step == STEPS
    torch.testing.assert_close(torch.tensor(_history(resumed, "loss", "eval_loss")), cpu_losses, rtol=1e-5, atol=0)
