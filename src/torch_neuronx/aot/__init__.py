"""Bundles: an exported program compiled ahead into one file, and run from it without the model's code."""

from torch_neuronx.aot.compile import BundleInfo, aot_compile
from torch_neuronx.aot.errors import BundleError
from torch_neuronx.aot.loaded import LoadedProgram, load

__all__ = ["BundleError", "BundleInfo", "LoadedProgram", "aot_compile", "load"]
