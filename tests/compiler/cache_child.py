"""What other processes do to a cache, without importing torch: `python cache_child.py ACTION DIRECTORY KEY`."""

import os
import sys
import time
import types
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "torch_neuronx"
FINGERPRINT = "engine 1.0 cpu avx2"


def without_torch():
    """Makes torch_neuronx.compiler importable without torch_neuronx/__init__.py, which imports torch."""
    package = types.ModuleType("torch_neuronx")
    package.__path__ = [str(SOURCE)]
    sys.modules["torch_neuronx"] = package


def container(key, payload=b"executable"):
    from torch_neuronx.compiler.container import Container

    return Container.build(
        b"program of " + key.encode(),
        payload,
        key=key,
        fingerprint=FINGERPRINT,
        op="aten::add.Tensor",
        created_by="0.1.0",
        signature="(f32[4], f32[4]) -> f32[4]",
        options={"fusion": False},
        interface={"results": [["f32", 4]], "aliases": {}},
    )


def race(cache, key):
    """One line on stdout per compile."""

    def compile():
        print("compiled", flush=True)
        time.sleep(0.3)
        return container(key)

    assert cache.load_or_compile(key, compile) == container(key)


def hold(cache, key):
    """Holds the lock until killed, with a forked child that outlives it, as a data loader's worker would."""
    with cache.lock(key) as locked:
        print("locked" if locked else "refused", flush=True)
        if os.fork() == 0:
            os.close(1)
            time.sleep(3)
            os._exit(0)
        time.sleep(60)


def imports(cache, key):
    print(*(name for name in ("torch", "jaxlib", "numpy", "pickle") if name in sys.modules))


if __name__ == "__main__":
    without_torch()
    from torch_neuronx.compiler.disk_cache import DiskCache

    action, directory, key = sys.argv[1:]
    {"race": race, "hold": hold, "imports": imports}[action](DiskCache(Path(directory), fingerprint=FINGERPRINT), key)
