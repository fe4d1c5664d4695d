"""What goes wrong with bundles."""

from __future__ import annotations


class BundleError(RuntimeError):
    """A bundle cannot be written or used; the message says which, why and what to do."""
