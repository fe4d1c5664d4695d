"""How much of PyTorch works on `neuron`, measured: `make conformance` runs this and writes docs/op_support.md.

passes    runs of the conformance tool and of our own checks, as JSON lines under build/conformance/
verdicts  what the passes together say about each unit (op, dtype, mode)
gaps      what is known not to work, with reasons: gaps.toml
results   the verdicts in short, committed as results.json
page      docs/op_support.md, written from results.json and gaps.toml
"""
