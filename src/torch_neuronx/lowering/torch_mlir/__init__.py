"""Torch-MLIR as a second frontend."""
