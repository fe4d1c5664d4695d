"""What a varying size is padded to."""

from __future__ import annotations

import bisect


def ladder(n: int, buckets: tuple[int, ...]) -> int:
    """The first size that holds n: of `buckets`, else of 2^k and 3 * 2^k, multiples of 8 from 16 on."""
    if buckets and n <= buckets[-1]:
        return buckets[bisect.bisect_left(buckets, n)]
    power = 1 << max(n - 1, 0).bit_length()
    between = power // 4 * 3
    return between if n <= between and between % 8 == 0 else max(power, 8)
