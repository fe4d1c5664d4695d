"""Advanced indexing, reading and writing, with integers and masks."""

from __future__ import annotations

import pytest
import torch
from emulate import Lowered, check, run

aten = torch.ops.aten
X = torch.arange(24.0).reshape(2, 3, 4)
M3 = torch.tensor([True, False, True])
M23 = torch.tensor([[True, False, True], [False, True, False]])
NONE23 = torch.zeros(2, 3, dtype=torch.bool)


def i(*values):
    return torch.tensor(values)


READS = {
    "rows": (i(1, 0, -1),),
    "int32": (i(1, 0).int(),),
    "scalar": (torch.tensor(1),),
    "empty": (torch.empty(0, dtype=torch.int64),),
    "broadcast": (i(0, 1).reshape(2, 1), i(0, 2, -3)),
    "adjacent": (slice(None), i(0, 2), i(1, 3)),
    "apart": (i(0, 1), slice(None), i(1, 3)),
    "matrix": (slice(None), i(0, 2, -1, 1).reshape(2, 2)),
    "mask": (M23,),
    "empty mask": (NONE23,),
    "byte mask": (M23.to(torch.uint8),),
    "true": (torch.tensor(True),),
    "mask behind": (slice(None), M3),
    "mask last": (Ellipsis, torch.tensor([True, False, False, True])),
    "mask and integers": (i(0, 1), M3),
    "mask and one integer": (1, M3),
    "masks with a scalar": (M23, 0),
    "one broadcasts": (i(0, 1, 0), torch.tensor([False, True, False])),
    "all": (slice(None), i(0), M23[:, :2].flatten()),
}


@pytest.mark.parametrize("name", READS)
@pytest.mark.filterwarnings("ignore:indexing with dtype torch.uint8")
def test_reads(name):
    check(lambda x: x[READS[name]], X)


def test_reads_of_views_and_other_dtypes():
    check(aten.index.Tensor, X.permute(2, 0, 1), [i(3, 0), None, i(1, 2)])
    check(aten.index.Tensor, X > 5, [None, i(1, 1)])
    check(aten.index.Tensor, torch.empty(0, 3), [None, i(1)])
    check(aten._unsafe_index.Tensor, X, [None, i(1, -1)])


@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize(
    "indices, shape",
    [
        ([M23], ()),
        ([M23], (3, 4)),
        ([M23], (1, 4)),
        ([M23], (4,)),
        ([None, M3], (2, 2, 4)),
        ([None, M3], (2, 1, 4)),
        ([NONE23], (0, 4)),
        ([i(0, 1), M3], (2, 4)),
        ([i(0), M3], ()),
        ([i(0, 0, 1), i(1, 1, 2)], (3, 4)),
        ([i(1, -1, 0)], (3, 3, 4)),
        ([i(1, 0).reshape(2, 1), i(0, 2, 1)], (2, 3, 4)),
        ([None, i(0, 2), i(1, 3)], (2, 2)),
        ([i(0, 1), None, i(1, 3)], (2, 3)),
        ([None, None, i(0, 0, 0)], (3,)),
        ([torch.empty(0, dtype=torch.int64)], ()),
    ],
)
def test_writes(indices, shape, accumulate):
    values = torch.randn(shape)

    def write(x):
        return aten.index_put_.default(x, indices, values, accumulate)

    check(write, X.clone())
    check(write, X.permute(1, 0, 2).contiguous().permute(1, 0, 2))


def test_last_of_equal_indices_wins():
    index = torch.randint(0, 7, (500,))
    check(aten.index_put.default, torch.zeros(7, 3), [index], torch.randn(500, 3))


def test_masked_index_pieces():
    mask, index = torch.tensor([True, False, True]), [i(1, 99, -2), None]
    check(aten._unsafe_masked_index.default, X, mask.reshape(3, 1, 1), [i(1, 99, 0), None], 7.0)
    check(aten._unsafe_masked_index_put_accumulate.default, X, mask.reshape(3, 1, 1), index, torch.randn(3, 3, 4))


@pytest.mark.parametrize(
    "read",
    [
        lambda x: x[i(2)],
        lambda x: x[:, i(0, -4)],
        lambda x: x[i(0, 1, 1), M3],
        lambda x: x[:, M23],
        lambda x: x.index_put((i(5),), torch.tensor(1.0)),
    ],
)
def test_indices_are_checked(read):
    with pytest.raises(IndexError):
        read(X)
    with Lowered(strict=True), pytest.raises(IndexError):
        read(X)


def test_mask_counts_are_checked():
    with pytest.raises(RuntimeError, match="shape mismatch"):
        run(aten.index_put.default, (X, [M23], torch.randn(2, 4)), {})


def test_an_index_that_takes_no_element_is_not_looked_at():
    empty, far = torch.ones(0, 1, 3), torch.tensor([0, -1, 7])
    for read in (lambda x, i: x[:, i], lambda x, i: x[:, i, -1], lambda x, i: x[:, :, i]):
        assert read(empty.to("neuron"), far.to("neuron")).shape == read(empty, far).shape
    x = empty.to("neuron")
    x[:, far.to("neuron")] = 1
    with pytest.raises(IndexError):
        torch.ones(2, 1, 3, device="neuron")[:, far.to("neuron")].cpu()
