"""The strategies: programs that run on CPU torch while they are drawn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from hypothesis import strategies as st

from tests.property.program import Program, Step, tensors_of
from tests.property.scene import NotApplicable, Scene, Unspecified
from tests.property.steps import FAMILIES, gradient

Draw = Callable[[st.SearchStrategy[Any]], Any]


@st.composite
def programs(draw: Draw, most_steps: int = 8) -> Program:
    """A few tensors and up to `most_steps` lines that use them."""
    scene = Scene(draw)
    with torch.no_grad():
        for _ in range(draw(st.integers(1, 2))):
            scene.start()
        _take_steps(scene, FAMILIES, draw(st.integers(1, most_steps)))
    return scene.program()


@st.composite
def gradient_programs(draw: Draw, most_steps: int = 6) -> Program:
    """Leaves, differentiable lines, a backward pass, and the leaves' gradients."""
    scene = Scene(draw)
    dtype = scene.pick((torch.float64, torch.float32))
    leaves = [
        scene.start(scene.pick(((3,), (2, 3), (3, 1), ())), dtype, finite=True) for _ in range(draw(st.integers(1, 2)))
    ]
    for leaf in leaves:
        scene.record(Step(f"{leaf}.requires_grad_()", "requires_grad_"))
    _take_steps(scene, (gradient.STEPS, gradient.VIEWS, gradient.STEPS), draw(st.integers(1, most_steps)))
    roots = [n for n, t in tensors_of(scene.names).items() if t.requires_grad and not t.is_leaf]
    if roots:
        scene.do(f"({' + '.join(f'{n}.sum()' for n in roots)}).backward()", "backward", "sum", statement=True)
        for leaf in leaves:
            if scene.names.get(leaf) is not None and scene[leaf].grad is not None:
                scene.do(f"{leaf}.grad", "grad", "sum")
    return scene.program()


def _take_steps(scene: Scene, families: Any, count: int) -> None:
    for _ in range(count):
        try:
            scene.pick(scene.pick(families))(scene)
        except NotApplicable:
            continue
        except Unspecified:
            break
