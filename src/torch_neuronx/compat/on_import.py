"""Patching a module when it is imported: it costs nothing to those who do not use it."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

Patch = Callable[[ModuleType], None]


def on_import(name: str, patch: Patch) -> None:
    """Calls `patch(module)` now, or as soon as the module has been imported."""
    module = sys.modules.get(name)
    if module is None:
        sys.meta_path.insert(0, _Finder(name, patch))
    else:
        patch(module)


class _Finder(MetaPathFinder):
    """Sees the first import of one module and is gone."""

    def __init__(self, name: str, patch: Patch) -> None:
        self._name, self._patch = name, patch

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _Patching(spec.loader, self._patch)
        return spec


class _Patching(Loader):
    """Loads as the real loader does, then patches."""

    def __init__(self, loader: Any, patch: Patch) -> None:
        self._loader, self._patch = loader, patch

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self._loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        self._patch(module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)
