"""Kernels of sparse tensors: operators on their indices and values. Imported at the first operator that needs one."""
