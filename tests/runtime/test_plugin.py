"""A target whose memory the host cannot see: a PJRT C-API plugin, each time in a process of its own."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import torch_neuronx

CHILD = Path(__file__).with_name("plugin_child.py")
PACKAGE_ROOT = Path(torch_neuronx.__file__).parents[1]


def _plugin() -> Path | None:
    spec = importlib.util.find_spec("lammps_jax_pjrt_cpu")
    return Path(spec.origin).with_name("pjrt_c_api_cpu_plugin.so") if spec and spec.origin else None


needs_plugin = pytest.mark.skipif(
    _plugin() is None, reason="no plugin: pip install --require-hashes --no-deps -r tests/runtime/plugin.txt"
)


def _run(*arguments: str, plugin: Path | str, cache: Path) -> subprocess.CompletedProcess[str]:
    search = os.pathsep.join(filter(None, (str(PACKAGE_ROOT), os.environ.get("PYTHONPATH"))))
    env = {**os.environ, "PYTHONPATH": search, "TORCH_NEURONX_NEFF_CACHE_DIR": str(cache)}
    env |= {"TORCH_NEURONX_PJRT_PLUGIN": str(plugin)}
    env.pop("TORCH_NEURONX_TARGET", None)
    command = [sys.executable, *arguments]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=False)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What two processes saw, the second with the first one's executables on disk."""
    cache = tmp_path_factory.mktemp("cache")
    cache.chmod(0o700)
    seen = []
    for _ in range(2):
        done = _run(str(CHILD), plugin=_plugin() or "", cache=cache)
        assert done.returncode == 0, done.stderr
        seen.append(json.loads(done.stdout.splitlines()[-1]))
    return seen


@needs_plugin
class TestOnAPlugin:
    def test_it_is_not_the_host(self, runs):
        assert not runs[0]["host_visible"]
        assert runs[0]["target"] == "plugin"
        assert "pjrt_c_api_cpu_plugin" in runs[0]["name"]

    def test_values_travel_both_ways(self, runs):
        assert runs[0]["add"] == [[0, 2, 4], [6, 8, 10]]
        assert runs[0]["bfloat16"] == [[0, 2, 4], [6, 8, 10]]
        assert runs[0]["empty"] == [0, 3]

    def test_matmul(self, runs):
        assert runs[0]["matmul"] == runs[0]["expected_matmul"]

    def test_writes_through_views_alias(self, runs):
        assert runs[0]["view"] == [[[7, 7, 7, 7], [1, 0, 1, 0], [1, 0, 1, 0], [0, 0, 0, 0]], True]

    def test_sizes_that_depend_on_data(self, runs):
        assert runs[0]["nonzero"] == [[1], [2]]

    def test_a_host_copy_keeps_its_value(self, runs):
        assert runs[0]["donated"] == [[0, 1, 2, 3], [1, 2, 3, 4]]

    def test_host_copies_end_with_their_arrays(self, runs):
        # 300 if they did not; the allocator was seen to keep 38 on a loaded machine
        assert runs[1]["resident_megabytes_added"] < 100

    def test_training_as_on_the_cpu(self, runs):
        losses = runs[0]["losses"]
        torch.testing.assert_close(torch.tensor(losses["neuron"]), torch.tensor(losses["cpu"]), rtol=1e-5, atol=0)

    def test_an_index_out_of_range_is_an_error(self, runs):
        assert "index is out of bounds for dimension 0 with size 3" in runs[0]["wrong_index"]

    def test_nothing_falls_back_but_lapack_which_says_why(self, runs):
        assert runs[0]["fallbacks_before_linalg"] == {}
        assert runs[0]["cholesky"] == [[2, 0], [0, 2]]
        [(op, reason)] = runs[0]["fallback_reasons"]
        assert op == "aten::linalg_cholesky_ex"
        assert "LAPACK" in reason
        assert runs[0]["counters"]["failed"] == 0

    def test_executables_come_back_from_disk(self, runs):
        first, second = (r["counters"] for r in runs)
        assert first["compiled"] > 20
        assert second["compiled"] == 0
        assert second["loaded"] == first["compiled"] + first["loaded"]

    def test_executables_are_valid_for_one_plugin_only(self, runs):
        digest = hashlib.sha256(_plugin().read_bytes()).hexdigest()
        assert digest in runs[0]["fingerprint"], "the plugin's version string is the same for every build of it"


FIRST_OP = "import torch, torch_neuronx; torch.ones(2, device='neuron')"


@pytest.mark.parametrize("code", [FIRST_OP, "import torch, torch_neuronx; torch.neuron.synchronize()"])
def test_a_path_that_is_not_there(tmp_path, code):
    done = _run("-c", code, plugin="/nowhere/plugin.so", cache=tmp_path)
    assert done.returncode == 1
    assert "TORCH_NEURONX_PJRT_PLUGIN='/nowhere/plugin.so' is not a file" in done.stderr
    assert "unset it to run on the host CPU" in done.stderr


def test_a_file_that_is_no_library(tmp_path):
    text = tmp_path / "plugin.so"
    text.write_text("no machine code in here")
    done = _run("-c", FIRST_OP, plugin=text, cache=tmp_path)
    assert done.returncode == 1
    assert f"the PJRT plugin {text} could not be started" in done.stderr
    assert "unset TORCH_NEURONX_PJRT_PLUGIN" in done.stderr


def test_a_library_that_is_no_plugin(tmp_path):
    [library] = (PACKAGE_ROOT / "torch_neuronx").glob("_C*.so")
    done = _run("-c", FIRST_OP, plugin=library, cache=tmp_path)
    assert done.returncode == 1
    assert "GetPjrtApi not found" in done.stderr


def test_plugin_target_without_a_path(tmp_path):
    code = "import os; os.environ['TORCH_NEURONX_TARGET'] = 'plugin'\n" + FIRST_OP
    done = _run("-c", code, plugin="", cache=tmp_path)
    assert done.returncode == 1
    assert "TORCH_NEURONX_TARGET=plugin needs a plugin" in done.stderr


def test_import_torch_survives_a_broken_path(tmp_path):
    done = _run("-c", "import torch, torch_neuronx; print(torch.ones(2).sum())", plugin="/nowhere", cache=tmp_path)
    assert done.returncode == 0
    assert "tensor(2.)" in done.stdout
