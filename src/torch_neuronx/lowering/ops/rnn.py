"""Fused recurrent cells. Sequences, layers and directions are torch's own composites over them."""

from __future__ import annotations

from collections.abc import Sequence

from torch_neuronx.lowering import hlo
from torch_neuronx.lowering.dtypes import compute_dtype
from torch_neuronx.lowering.table import lower
from torch_neuronx.lowering.value import Value


def _wide(x: Value) -> Value:
    return hlo.convert(x, compute_dtype(x.dtype))


def _chunks(x: Value, n: int) -> list[Value]:
    """n equal parts of the last dimension."""
    size = x.shape[-1] // n
    return [hlo.slice_dim(x, -1, i * size, (i + 1) * size) for i in range(n)]


def _gates(gates: Value, bias: Value | None, n: int) -> list[Value]:
    x = _wide(gates)
    return _chunks(x if bias is None else x + hlo.convert(bias, x.dtype), n)


def _joined(parts: Sequence[Value], like: Value) -> Value:
    return hlo.convert(hlo.concatenate(parts, -1), like.dtype)


def _bias_gradient(gates: Value, has_bias: bool) -> Value | None:
    return hlo.convert(hlo.sum_(_wide(gates), 0), gates.dtype) if has_bias else None


@lower("aten::_thnn_fused_lstm_cell")
def lstm_cell(
    input_gates: Value, hidden_gates: Value, cx: Value, input_bias: Value | None, hidden_bias: Value | None
) -> tuple[Value, Value, Value]:
    """(hy, cy, workspace): the workspace holds the activated gates i, f, g, o."""
    pairs = zip(_gates(input_gates, input_bias, 4), _gates(hidden_gates, hidden_bias, 4), strict=True)
    i, f, g, o = (a + b for a, b in pairs)
    i, f, g, o = hlo.logistic(i), hlo.logistic(f), hlo.tanh(g), hlo.logistic(o)
    cy = f * _wide(cx) + i * g
    hy = o * hlo.tanh(cy)
    return hlo.convert(hy, cx.dtype), hlo.convert(cy, cx.dtype), _joined([i, f, g, o], input_gates)


@lower("aten::_thnn_fused_lstm_cell_backward_impl")
def lstm_cell_backward(
    grad_hy: Value | None, grad_cy: Value | None, cx: Value, cy: Value, workspace: Value, has_bias: bool
) -> tuple[Value | None, Value | None, Value | None]:
    """(gradient of the gates, of cx, of the bias)."""
    if grad_hy is None and grad_cy is None:
        return None, None, None
    i, f, g, o = _chunks(_wide(workspace), 4)
    squashed = hlo.tanh(_wide(cy))
    d_hidden = hlo.zeros_like(squashed) if grad_hy is None else _wide(grad_hy)
    d_cell = d_hidden * o * (1 - squashed * squashed)
    if grad_cy is not None:
        d_cell = d_cell + _wide(grad_cy)
    d_i, d_f, d_g = d_cell * g * i * (1 - i), d_cell * _wide(cx) * f * (1 - f), d_cell * i * (1 - g * g)
    d_o = d_hidden * squashed * o * (1 - o)
    gates = _joined([d_i, d_f, d_g, d_o], workspace)
    return gates, hlo.convert(d_cell * f, cx.dtype), _bias_gradient(gates, has_bias)


@lower("aten::_thnn_fused_gru_cell")
def gru_cell(
    input_gates: Value, hidden_gates: Value, hx: Value, input_bias: Value | None, hidden_bias: Value | None
) -> tuple[Value, Value]:
    """(hy, workspace): the workspace holds r, z, n, hx and the hidden part of n."""
    (ir, iz, i_n), (hr, hz, hn) = _gates(input_gates, input_bias, 3), _gates(hidden_gates, hidden_bias, 3)
    r, z, h = hlo.logistic(ir + hr), hlo.logistic(iz + hz), _wide(hx)
    n = hlo.tanh(i_n + r * hn)
    hy = n + z * (h - n)
    return hlo.convert(hy, hx.dtype), _joined([r, z, n, h, hn], hx)


@lower("aten::_thnn_fused_gru_cell_backward")
def gru_cell_backward(
    grad_hy: Value, workspace: Value, has_bias: bool
) -> tuple[Value, Value, Value, Value | None, Value | None]:
    """(gradients of the input gates, the hidden gates, hx, the input bias, the hidden bias)."""
    r, z, n, h, hn = _chunks(_wide(workspace), 5)
    d = _wide(grad_hy)
    d_z = d * (h - n) * z * (1 - z)
    d_n = d * (1 - z) * (1 - n * n)
    d_r = d_n * hn * r * (1 - r)
    of_input, of_hidden = _joined([d_r, d_z, d_n], grad_hy), _joined([d_r, d_z, d_n * r], grad_hy)
    biases = _bias_gradient(of_input, has_bias), _bias_gradient(of_hidden, has_bias)
    return of_input, of_hidden, hlo.convert(d * z, grad_hy.dtype), *biases
