"""Graphs over padded sizes: one program serves every size up to a bound.

A dimension is padded to its bound and what lies beyond its run-time size is garbage, always. A rule says for an op
along which dimensions it mixes values, and what to put in the place of garbage there; an op without a rule never sees
padding: the graph is then compiled for the exact sizes.
"""
