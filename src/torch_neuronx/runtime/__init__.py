"""Running executables: the protocol, and its implementation on jaxlib."""

from torch_neuronx import engine_log  # noqa: F401 - before any module here imports jaxlib
