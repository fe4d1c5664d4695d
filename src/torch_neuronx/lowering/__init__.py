"""ATen to StableHLO: one table of rows, one file per family of operators.

Nothing in here knows a runtime or a storage: values go in, values come out.
"""

from torch_neuronx import engine_log  # noqa: F401 - before any module here imports jaxlib.mlir
