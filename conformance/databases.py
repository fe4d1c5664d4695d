"""The full tests of tests/databases (modules, optimizers, foreach ops), and how many entries of each passed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from xml.etree import ElementTree

from conformance.passes import FOLDER, ROOT

_REPORT = FOLDER / "databases.xml"


def run(jobs: int) -> list[str]:
    """The tests that fail."""
    print("conformance: databases", file=sys.stderr, flush=True)
    FOLDER.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "pytest", "tests/databases", "-q", "-m", "slow or not slow", "-n", str(jobs)]
    path = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]))
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run([*command, f"--junitxml={_REPORT}"], cwd=ROOT, env=environment, check=False)
    failed = [f"{database}: {entry} fails" for database, entry, passed in _cases() if not passed]
    return failed or ([f"tests/databases: pytest ended with {done.returncode}"] if done.returncode else [])


def read() -> dict[str, list[int]]:
    """Database -> entries all of whose tests passed, entries."""
    entries: dict[str, dict[str, bool]] = {}
    for database, entry, passed in _cases():
        of = entries.setdefault(database, {})
        of[entry] = of.get(entry, True) and passed
    return {database: [sum(of.values()), len(of)] for database, of in sorted(entries.items())}


def _cases() -> Iterator[tuple[str, str, bool]]:
    """(database, entry, passed): test_it[nn.Linear-float32] of test_modules.py is of modules' nn.Linear."""
    if not _REPORT.exists():
        return
    for case in ElementTree.parse(_REPORT).iter("testcase"):
        database = case.get("classname", "").rpartition(".test_")[2]
        entry = case.get("name", "").partition("[")[2].partition("-")[0].rstrip("]")
        yield database, entry, not list(case.iter("failure")) and not list(case.iter("error"))
