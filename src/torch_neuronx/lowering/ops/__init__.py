"""The rows, one file per family of operators."""
