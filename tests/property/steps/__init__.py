"""What programs are made of: functions that draw one line each, and how often each family is drawn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tests.property.scene import Scene
from tests.property.steps import convert, elementwise, in_place, index, join, product, reduce, view, write

Draw = Callable[[Scene], None]
FAMILIES: Final[tuple[tuple[Draw, ...], ...]] = (
    elementwise.STEPS,
    view.STEPS,
    in_place.STEPS,
    view.STEPS,
    index.STEPS,
    write.STEPS,
    reduce.STEPS,
    elementwise.STEPS,
    in_place.STEPS,
    join.STEPS,
    convert.STEPS,
    product.STEPS,
)
