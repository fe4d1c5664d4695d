"""The random number generator: Philox 4x32-10, counter based, bit for bit the same on every target.

A generator is two int64 numbers, `seed` and `offset`. Block i of an op's draw is

    Philox4x32-10(key = seed as two words, counter = (offset + i as two words, stream as two words))

and gives four 32-bit words. A draw of n words takes ceil(n / 4) blocks and orders them by word
first (all words 0, then all words 1, ...), because that needs no interleaving. The op's blocks are
counted in `Program.rng_blocks`; after the call the generator's offset advances by that number, so
no block is used twice. Rejection loops cannot know how many rounds they need: they draw round r of
the same blocks from `stream` r, which no other draw uses.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import torch

from torch_neuronx.lowering import hlo
from torch_neuronx.lowering.module import current, rng_state
from torch_neuronx.lowering.padded.sizes import bound_of, quotient_up, value_of
from torch_neuronx.lowering.value import Scalar, Size, Value

ROUNDS: Final = 10
MULTIPLIERS: Final = (0xD2511F53, 0xCD9E8D57)
WEYL: Final = (0x9E3779B9, 0xBB67AE85)
U32, U64 = torch.uint32, torch.uint64


def _low(x: Value) -> Value:
    return hlo.convert(x, U32)


def _high(x: Value) -> Value:
    return hlo.convert(hlo.shift_right_logical(x, 32), U32)


def philox(counter: Sequence[Value], key: Sequence[Value]) -> list[Value]:
    """Four words per block from four counter words (uint32) and a two-word key."""
    c0, c1, c2, c3 = hlo.operands(*counter)
    k0, k1 = key
    for _ in range(ROUNDS):
        p0, p1 = (hlo.convert(c, U64) * m for c, m in zip((c0, c2), MULTIPLIERS, strict=True))
        c0, c1, c2, c3 = _high(p1) ^ c1 ^ k0, _low(p1), _high(p0) ^ c3 ^ k1, _low(p0)
        k0, k1 = k0 + WEYL[0], k1 + WEYL[1]
    return [c0, c1, c2, c3]


class Draw:
    """Blocks reserved for one draw; `words` may be called again for further streams."""

    def __init__(self, blocks: Size) -> None:
        program = current()
        seed, offset = (hlo.convert(v, U64) for v in (rng_state()[0], offset_now()))
        self.blocks = blocks
        self.key = (_low(seed), _high(seed))
        self.counter = hlo.iota((bound_of(blocks),), 0, U64) + offset
        program.rng_blocks += blocks

    @classmethod
    def of(cls, count: int, bits: int) -> Draw:
        """For `count` numbers; in a padded program for as many of them as there are in a call."""
        places = current().rng_places
        return cls(blocks_for(count, bits) if places is None else blocks_for(places.count, bits))

    def words(self, stream: Scalar = 0) -> list[Value]:
        """Four planes of uint32, one word per block each."""
        number = hlo.convert(hlo.as_value(stream), U64)
        words = philox((_low(self.counter), _high(self.counter), _low(number), _high(number)), self.key)
        return hlo.optimization_barrier(*words)  # computed once, not once per plane

    def bits(self, count: int, bits: int = 32, stream: Scalar = 0) -> Value:
        """`count` random uint32 or uint64."""
        w = self.words(stream)
        return self.ordered(w if bits == 32 else [_join(w[0], w[1]), _join(w[2], w[3])], count)

    def ordered(self, planes: Sequence[Value], count: int) -> Value:
        """The first `count` numbers of the planes; in a padded program, each element's own."""
        flat, places = hlo.concatenate(planes, 0), current().rng_places
        if places is None:
            return hlo.slice_dim(flat, 0, 0, count)
        if places.indices.shape != (count,):
            raise RuntimeError(f"{count} random numbers are drawn for {places.indices.shape} places")
        drawn = hlo.maximum(value_of(self.blocks), hlo.constant(1, torch.int64))
        plane, block = hlo.divide(places.indices, drawn), hlo.remainder(places.indices, drawn)
        return hlo.take_rows(flat, plane * planes[0].shape[0] + block)


def _join(low: Value, high: Value) -> Value:
    return hlo.convert(low, U64) | hlo.shift_left(hlo.convert(high, U64), 32)


def blocks_for(count: Size, bits: int = 32) -> Size:
    return quotient_up(count, 128 // bits)


def offset_now() -> Value:
    """int64 rank 0: where the generator stands behind what the program has drawn so far."""
    drawn = current().rng_blocks
    return rng_state()[1] + (drawn if isinstance(drawn, int) else value_of(drawn))


def random_bits(shape: Sequence[int], bits: int = 32) -> Value:
    """Uniformly random uint32 or uint64 of `shape`; advances the generator."""
    count = math.prod(shape)
    if count == 0:
        return hlo.full(tuple(shape), 0, U32 if bits == 32 else U64)
    return hlo.reshape(Draw.of(count, bits).bits(count, bits), tuple(shape))


DIGITS: Final = {torch.float64: 53, torch.float32: 24, torch.float16: 11, torch.bfloat16: 8}


def unit(bits: Value, dtype: torch.dtype) -> Value:
    """[0, 1) in steps of the dtype's resolution at 1, so that rounding never reaches 1."""
    digits = DIGITS.get(dtype, 8)
    width = torch.iinfo(bits.dtype).bits
    wide = torch.float64 if dtype is torch.float64 else torch.float32
    return hlo.convert(hlo.shift_right_logical(bits, width - digits), wide) * 2.0**-digits


def open_unit(bits: Value, dtype: torch.dtype) -> Value:
    """(0, 1]: all of the word's resolution near zero, for logarithms."""
    width = torch.iinfo(bits.dtype).bits
    return hlo.convert(bits, dtype) * 2.0**-width + 2.0 ** -(width + 1)


def word_size(dtype: torch.dtype) -> int:
    return 64 if dtype is torch.float64 else 32


def uniform(shape: Sequence[int], dtype: torch.dtype) -> Value:
    """Uniform in [0, 1), computed in float32 or float64 with `dtype`'s resolution."""
    return unit(random_bits(shape, word_size(dtype)), dtype)


def positive_uniform(shape: Sequence[int], dtype: torch.dtype) -> Value:
    """Uniform in (0, 1], float32 or float64."""
    return open_unit(random_bits(shape, word_size(dtype)), dtype)


def normal(shape: Sequence[int], dtype: torch.dtype) -> Value:
    """Standard normal (float32 or float64) by Box-Muller: both halves of every pair are used."""
    count = math.prod(shape)
    if count == 0:
        return hlo.full(tuple(shape), 0, dtype)
    draw = Draw.of(count, word_size(dtype))
    return hlo.reshape(draw.ordered(normal_planes(draw.words(), dtype), count), tuple(shape))


def normal_planes(words: Sequence[Value], dtype: torch.dtype) -> list[Value]:
    """Every normal number the four words of the blocks hold: 4 in float32, 2 in float64."""
    if dtype is torch.float64:
        return box_muller(_join(words[0], words[1]), _join(words[2], words[3]), dtype)
    return [*box_muller(words[0], words[1], dtype), *box_muller(words[2], words[3], dtype)]


def box_muller(first: Value, second: Value, dtype: torch.dtype) -> list[Value]:
    """Two independent normal numbers from two random words."""
    radius = hlo.sqrt(-2.0 * hlo.log(open_unit(first, dtype)))
    angle = hlo.convert(second, dtype) * (2 * math.pi * 2.0 ** -torch.iinfo(second.dtype).bits)
    return hlo.optimization_barrier(radius * hlo.cosine(angle), radius * hlo.sine(angle))
