"""Executables in torch.compiler.save_cache_artifacts(): what this process used, for another's empty cache."""

from __future__ import annotations

import threading
import warnings
from typing import Any

from torch.compiler._cache import CacheArtifact, CacheArtifactFactory, CacheArtifactManager

from torch_neuronx.compiler.container import CorruptFile, decode
from torch_neuronx.compiler.disk_cache import DiskCache, is_key

TYPE = "neuron"

_lock = threading.Lock()


class NeuronCacheArtifact(CacheArtifact):
    """One file of the executable cache. One that was recorded is read when it is saved, so that it costs its name."""

    def __init__(self, key: str, content: bytes = b"") -> None:
        object.__setattr__(self, "key", key)
        object.__setattr__(self, "_content", content)

    @property
    def content(self) -> bytes:
        """The file's bytes; none when it is gone."""
        held: bytes = self._content  # type: ignore[attr-defined]
        return held or DiskCache.from_environment().contents(self.key) or b""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NeuronCacheArtifact) and other.key == self.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.key!r})"

    @staticmethod
    def type() -> str:
        return TYPE

    def populate_cache(self) -> None:
        """Puts the file into the cache, if it is whole and named as what it holds."""
        data = self.content
        if not data:
            return
        try:
            container = decode(data)
        except CorruptFile as corrupt:
            warnings.warn(f"the artifact {self.key[:80]} is not used: {corrupt.reason}", RuntimeWarning, stacklevel=3)
            return
        if container.header.key != self.key or not is_key(self.key):
            warnings.warn(f"the artifact {self.key[:80]} holds another executable", RuntimeWarning, stacklevel=3)
            return
        DiskCache.from_environment().store(container)


def register() -> None:
    """Makes torch know such artifacts; called once, while the device is registered."""
    known: dict[str, Any] = CacheArtifactFactory._artifact_types
    if TYPE not in known:
        CacheArtifactFactory.register(NeuronCacheArtifact)


def record(key: str) -> None:
    """Notes that this process used the executable `key`."""
    with _lock:
        CacheArtifactManager.record_artifact(TYPE, key, b"")
