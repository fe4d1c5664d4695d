"""StableHLO on Values: one dtype per call, numpy broadcasting, Python numbers as constants.

Every function takes and returns `Value`s of static physical shape; torch's promotion is done
before, by `lowering.promotion`.
"""

from torch_neuronx.lowering.hlo.compact import compact
from torch_neuronx.lowering.hlo.contract import convolution, dot_general
from torch_neuronx.lowering.hlo.control import branches, case, custom_call, map_reduce, optimization_barrier, while_loop
from torch_neuronx.lowering.hlo.convert import bitcast, complex_, convert, from_storage, imag, real, to_storage
from torch_neuronx.lowering.hlo.elementwise import *
from torch_neuronx.lowering.hlo.elementwise import in_dtype, operands
from torch_neuronx.lowering.hlo.fourier import fft
from torch_neuronx.lowering.hlo.index import gather, index_grid, scatter, sort, take_along, take_rows
from torch_neuronx.lowering.hlo.literal import as_value, constant, full, full_like, iota, ones_like, table, zeros_like
from torch_neuronx.lowering.hlo.mask import mask
from torch_neuronx.lowering.hlo.reduce import (
    all_,
    any_,
    argreduce,
    cumulative,
    prod,
    reduce,
    reduce_max,
    reduce_min,
    reduce_window,
    select_and_scatter,
    sum_,
)
from torch_neuronx.lowering.hlo.shape import (
    broadcast_in_dim,
    broadcast_shapes,
    broadcast_to,
    concatenate,
    dynamic_slice,
    dynamic_update_slice,
    flatten,
    pad,
    permute,
    reshape,
    reverse,
    slice_,
    slice_dim,
    squeeze,
    unsqueeze,
)
