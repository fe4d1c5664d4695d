"""The patches a convolution sees, as columns of a matrix, and their adjoint."""

from __future__ import annotations

from collections.abc import Sequence

from torch_neuronx.lowering import hlo
from torch_neuronx.lowering.table import lower
from torch_neuronx.lowering.value import Value

Ints = Sequence[int]


def _each(xs: Ints, n: int) -> list[int]:
    return list(xs) * n if len(xs) == 1 else list(xs)


def _positions(size: int, kernel: int, dilation: int, padding: int, stride: int) -> int:
    return (size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1


@lower("aten::im2col")
def im2col(self: Value, kernel_size: Ints, dilation: Ints, padding: Ints, stride: Ints) -> Value:
    """F.unfold: one strided slice per kernel position."""
    kernel, dil, pad, step = (_each(v, 2) for v in (kernel_size, dilation, padding, stride))
    x = self if self.ndim == 4 else hlo.unsqueeze(self, 0)
    n, c, *sizes = x.shape
    rows, cols = (_positions(sizes[i], kernel[i], dil[i], pad[i], step[i]) for i in range(2))
    x = hlo.pad(x, [0, 0, *pad], [0, 0, *pad])
    patches = []
    for i in range(kernel[0]):
        for j in range(kernel[1]):
            top, left = i * dil[0], j * dil[1]
            stop = [n, c, top + (rows - 1) * step[0] + 1, left + (cols - 1) * step[1] + 1]
            part = hlo.slice_(x, [0, 0, top, left], stop, [1, 1, *step])
            patches.append(hlo.reshape(part, (n, c, 1, rows * cols)))
    out = hlo.reshape(hlo.concatenate(patches, 2), (n, c * kernel[0] * kernel[1], rows * cols))
    return out if self.ndim == 4 else hlo.squeeze(out, 0)


@lower("aten::col2im")
def col2im(self: Value, output_size: Ints, kernel_size: Ints, dilation: Ints, padding: Ints, stride: Ints) -> Value:
    """F.fold, the adjoint of im2col: padded patches added in the kernel's order, as torch does."""
    out, kernel, dil, pad, step = (_each(v, 2) for v in (output_size, kernel_size, dilation, padding, stride))
    x = self if self.ndim == 3 else hlo.unsqueeze(self, 0)
    rows, cols = (_positions(out[i], kernel[i], dil[i], pad[i], step[i]) for i in range(2))
    n, c = x.shape[0], x.shape[1] // (kernel[0] * kernel[1])
    patches = hlo.reshape(x, (n, c, kernel[0] * kernel[1], rows, cols))
    total = hlo.full((n, c, *out), 0, x.dtype)
    for i in range(kernel[0]):
        for j in range(kernel[1]):
            part = hlo.squeeze(hlo.slice_dim(patches, 2, i * kernel[1] + j, i * kernel[1] + j + 1), 2)
            low = [i * dil[0] - pad[0], j * dil[1] - pad[1]]
            spans = [(m - 1) * s + 1 for m, s in zip((rows, cols), step, strict=True)]
            high = [o - a - m for o, a, m in zip(out, low, spans, strict=True)]
            total = total + hlo.pad(part, [0, 0, *low], [0, 0, *high], 0, [0, 0, step[0] - 1, step[1] - 1])
    return total if self.ndim == 3 else hlo.squeeze(total, 0)
