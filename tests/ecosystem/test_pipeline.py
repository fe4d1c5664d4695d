"""pipeline(device="neuron") and Accelerate's training loop, as their users write them, beside the CPU."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import transformers as hf
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from tokenizers import Tokenizer, models, pre_tokenizers

from tests.ecosystem import families

TEXTS = ["w3 w4 w5", "w6 w7 w8 w9 w10"]


def _save(model: hf.PreTrainedModel, folder: Path) -> str:
    """The model and a tokenizer that knows the words w0, w1, ...; 0 pads, 1 is unknown."""
    words = {"[PAD]": 0, "[UNK]": 1} | {f"w{i}": i for i in range(2, families.VOCABULARY)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    model.save_pretrained(folder)
    hf.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", padding_side="left"
    ).save_pretrained(folder)
    return str(folder)


def test_a_pipeline_classifies_as_on_the_cpu(tmp_path: Path) -> None:
    folder = _save(families.classifier(), tmp_path)
    there, here = (
        hf.pipeline("text-classification", model=folder, device=device, top_k=None) for device in ("neuron", "cpu")
    )
    assert there.device.type == "neuron"
    for got, want in zip(there(TEXTS, batch_size=2), here(TEXTS, batch_size=2), strict=True):
        assert [x["label"] for x in got] == [x["label"] for x in want]
        assert [x["score"] for x in got] == pytest.approx([x["score"] for x in want], rel=1e-5)


def test_a_pipeline_extracts_features_as_on_the_cpu(tmp_path: Path) -> None:
    folder = _save(families.BERT.build(), tmp_path)
    got, want = (hf.pipeline("feature-extraction", model=folder, device=d)(TEXTS[0]) for d in ("neuron", "cpu"))
    torch.testing.assert_close(torch.tensor(got), torch.tensor(want), rtol=1e-5, atol=5e-6)


def test_a_pipeline_writes_the_cpus_text(tmp_path: Path) -> None:
    folder = _save(families.GPT2.build(), tmp_path)
    how = {"min_new_tokens": 4, "max_new_tokens": 4, "do_sample": False}
    got, want = (hf.pipeline("text-generation", model=folder, device=d)(TEXTS, **how) for d in ("neuron", "cpu"))
    assert got == want


def _train(*, on_cpu: bool) -> tuple[list[float], torch.device]:
    accelerator = Accelerator(cpu=on_cpu, gradient_accumulation_steps=2)
    model = families.classifier()
    ids = families.token_ids(rows=16)
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(ids, ids.sum(1) % 2), batch_size=4)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    model, optimizer, data, schedule = accelerator.prepare(model, optimizer, data, schedule)
    losses = []
    for batch, labels in data:
        with accelerator.accumulate(model):
            loss = model(input_ids=batch, labels=labels).loss
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        losses += accelerator.gather_for_metrics(loss.detach()).reshape(-1).tolist()
    device = accelerator.device
    accelerator.free_memory()
    accelerator.state._reset_state(reset_partial_state=True)
    return losses, device


def test_accelerates_loop_has_the_cpus_losses() -> None:
    AcceleratorState._reset_state(reset_partial_state=True)  # what an earlier Trainer on the CPU has left
    losses, device = _train(on_cpu=False)
    assert device.type == "neuron"
    wanted, _ = _train(on_cpu=True)
    assert losses == pytest.approx(wanted, rel=1e-5)
