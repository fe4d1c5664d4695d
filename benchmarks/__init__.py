"""Speed beside CPU torch, in one run: `make bench`, or `python -m benchmarks`."""
