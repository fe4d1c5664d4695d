"""Shape and strides of an elementwise result, by the rules of torch's TensorIterator.

torch's own meta kernels for these are Python by now, and differ from the CPU in two ways: an
in-place one lets its argument grow, and operands of mixed layouts give other strides.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch_neuronx.lowering.views import Layout, contiguous_strides

Sizes = tuple[int, ...]


def broadcast(shapes: Sequence[Sizes]) -> Sizes:
    """The common shape, or torch's error."""
    result: list[int] = []
    for shape in shapes:
        grown = [1] * (len(shape) - len(result)) + result
        first = len(grown) - len(shape)
        for i, n in enumerate(shape):
            d = first + i
            if grown[d] != n and grown[d] != 1 and n != 1:
                raise RuntimeError(
                    f"The size of tensor a ({grown[d]}) must match the size of tensor b ({n}) "
                    f"at non-singleton dimension {d}"
                )
            grown[d] = n if grown[d] == 1 else grown[d]
        result = grown
    return tuple(result)


def result_layout(operands: Sequence[Layout], numbers: bool = False) -> Layout:
    """The layout of a fresh result; `numbers`: whether 0-d numbers are among the operands, too."""
    shape = broadcast([x.sizes for x in operands])
    alike = all(x.sizes == shape for x in operands) and not (numbers and shape)
    if alike:
        if all(x.row_major for x in operands):
            return Layout(shape, contiguous_strides(shape))
        first = operands[0]
        if first.dense and all(x.strides == first.strides for x in operands):
            return Layout(shape, first.strides)
    return Layout(shape, _strides(shape, _order(shape, [_steps(x, shape) for x in operands])))


def closed_up(x: Layout) -> Layout:
    """A dense layout in the same order of memory."""
    strides, step = [0] * len(x.sizes), 1
    for d in _order(x.sizes, [x.strides]):
        strides[d] = step
        step *= max(x.sizes[d], 1)
    return Layout(x.sizes, tuple(strides))


def _steps(x: Layout, shape: Sizes) -> Sizes:
    """Strides over the common shape: 0 along what is broadcast."""
    missing = len(shape) - len(x.sizes)
    own = (0 if n == 1 and m != 1 else s for n, s, m in zip(x.sizes, x.strides, shape[missing:], strict=True))
    return (*(0 for _ in range(missing)), *own)


def _order(shape: Sizes, steps: Sequence[Sizes]) -> list[int]:
    """Dimensions from the fastest to the slowest: insertion sort, since a comparison may be undecided."""
    order = list(reversed(range(len(shape))))
    for i in range(1, len(order)):
        here = i
        for there in reversed(range(i)):
            verdict = _compare(order[there], order[here], shape, steps)
            if verdict < 0:
                break
            if verdict > 0:
                order[there], order[here] = order[here], order[there]
                here = there
    return order


def _compare(a: int, b: int, shape: Sizes, steps: Sequence[Sizes]) -> int:
    """1 when b steps faster than a, by the first operand that tells; 0 when none does."""
    for strides in steps:
        if not strides[a] or not strides[b]:
            continue
        if strides[a] != strides[b]:
            return -1 if strides[a] < strides[b] else 1
        if shape[a] > shape[b]:
            return 1
    return 0


def _strides(shape: Sizes, order: Sequence[int]) -> Sizes:
    if list(order) == list(reversed(range(len(shape)))):
        return contiguous_strides(shape)
    strides, step = [0] * len(shape), 1
    for d in order:
        strides[d] = step
        step *= shape[d]
    return tuple(strides)
