"""Quantized tensors are refused in words that name the op: nothing crashes, nothing is silently computed."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest
import torch

D = "neuron"
quantized = pytest.importorskip("torch.ao.nn.quantized", reason="torch without its quantized modules")
dynamic = pytest.importorskip("torch.ao.nn.quantized.dynamic", reason="torch without its quantized modules")


def _on_cpu() -> torch.Tensor:
    return torch.quantize_per_tensor(torch.tensor([[0.1, 0.2], [0.3, 0.4]]), 0.1, 0, torch.qint8)


def _channels() -> torch.Tensor:
    scales, zeros = torch.tensor([0.1, 0.2]), torch.tensor([0, 1])
    return torch.quantize_per_channel(torch.ones(2, 2), scales, zeros, 0, torch.quint8)


def _loaded() -> torch.Tensor:
    file = io.BytesIO()
    torch.save(_on_cpu(), file)
    file.seek(0)
    return torch.load(file, map_location=D)


def _x() -> torch.Tensor:
    return torch.ones(2, 2, device=D)


def _bytes() -> torch.Tensor:
    return torch.ones(2, dtype=torch.int8, device=D)


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "per tensor": (lambda: torch.quantize_per_tensor(_x(), 0.1, 0, torch.qint8), "aten::quantize_per_tensor"),
    "per tensor, parameters as tensors": (
        lambda: torch.quantize_per_tensor(_x(), torch.tensor(0.1), torch.tensor(0), torch.quint8),
        "aten::quantize_per_tensor.tensor_qparams",
    ),
    "a list": (
        lambda: torch.quantize_per_tensor([_x()], torch.tensor([0.1]), torch.tensor([0]), torch.qint8),
        "aten::quantize_per_tensor.tensors",
    ),
    "dynamic": (
        lambda: torch.quantize_per_tensor_dynamic(_x(), torch.quint8, False),
        "aten::quantize_per_tensor_dynamic",
    ),
    "per channel": (
        lambda: torch.quantize_per_channel(_x(), torch.ones(2, device=D), _bytes().long(), 0, torch.qint8),
        "aten::quantize_per_channel",
    ),
    "qint8": (lambda: torch.empty(2, dtype=torch.qint8, device=D), "aten::empty"),
    "quint8": (lambda: torch.zeros(2, dtype=torch.quint8, device=D), "aten::empty"),
    "qint32": (lambda: torch.empty_strided((2,), (1,), dtype=torch.qint32, device=D), "aten::empty_strided"),
    "an empty one": (
        lambda: torch._empty_affine_quantized([2], scale=1.0, zero_point=0, dtype=torch.qint8, device=D),
        "aten::_empty_affine_quantized",
    ),
    "moved": (lambda: _on_cpu().to(D), "aten::empty_quantized"),
    "moved, per channel": (lambda: _channels().to(D), "aten::empty_quantized"),
    "loaded": (_loaded, "aten::_empty_affine_quantized"),
    "converted": (lambda: _x().to(torch.qint8), "aten::empty_strided"),
    "copied into floats": (lambda: _x().copy_(_on_cpu()), "aten::_copy_from"),
    "floats copied into one": (lambda: _on_cpu().copy_(_x()), "aten::_copy_from"),
    "like one": (lambda: torch.empty_like(_on_cpu(), device=D), "aten::_empty_affine_quantized"),
    "of integers": (
        lambda: torch._make_per_tensor_quantized_tensor(_bytes(), 0.1, 0),
        "aten::_make_per_tensor_quantized_tensor",
    ),
    "int_repr": (lambda: _x().int_repr(), "aten::int_repr"),
    "q_scale": (lambda: _x().q_scale(), "aten::q_scale"),
    "q_zero_point": (lambda: _x().q_zero_point(), "aten::q_zero_point"),
    "qscheme": (lambda: _x().qscheme(), "aten::qscheme"),
    "Quantize": (lambda: quantized.Quantize(0.1, 0, torch.quint8).to(D)(_x()), "aten::quantize_per_tensor"),
    "dynamic.Linear": (lambda: dynamic.Linear(2, 3).to(D)(_x()), "quantized::linear_dynamic"),
    "dynamic.LSTM": (lambda: dynamic.LSTM(2, 3).to(D)(_x()[None]), "aten::quantized_lstm"),
    "Embedding": (lambda: quantized.Embedding(4, 3).to(D)(torch.tensor([1], device=D)), "quantized::embedding_byte"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    call, op = REFUSED[name]
    with pytest.raises(NotImplementedError, match=op) as refused:
        call()
    assert "neuron" in str(refused.value) and "Keep the" in str(refused.value)


def test_what_the_cpu_refuses_too() -> None:
    for add in (lambda d: _on_cpu() + torch.ones(2, 2, device=d), lambda d: torch.ones(2, 2, device=d) + _on_cpu()):
        with pytest.raises(RuntimeError, match="promoteTypes with quantized numbers"):
            add("cpu")
        with pytest.raises(RuntimeError, match="promoteTypes with quantized numbers"):
            add(D)


def test_the_ways_round() -> None:
    """Dequantized on the CPU, integers and a scale as plain tensors, and fake quantization."""
    assert torch.equal(_on_cpu().dequantize().to(D).cpu(), _on_cpu().dequantize())
    kept = _on_cpu()
    plain = kept.int_repr().to(D).float() * kept.q_scale()
    torch.testing.assert_close(plain.cpu(), kept.dequantize())
    fake = torch.fake_quantize_per_tensor_affine(torch.full((3,), 0.33, device=D), 0.1, 0, -128, 127)
    torch.testing.assert_close(
        fake.cpu(), torch.fake_quantize_per_tensor_affine(torch.full((3,), 0.33), 0.1, 0, -128, 127)
    )
    product = torch._int_mm(*(torch.ones(32, 32, dtype=torch.int8, device=D) for _ in range(2)))
    assert product.dtype is torch.int32 and product.cpu().unique().tolist() == [32]
    assert not _x().is_quantized and torch.equal(_x().dequantize(), _x())
