"""Our own checks in worker processes: one that dies or hangs costs the unit it was at, and the rest goes on."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

CHUNK = 200
PATIENCE = 600.0  # seconds for one unit, or for starting

Check = Callable[[str], dict[str, Any]]


def serve(check: Check) -> None:
    """The worker's side: identities come as lines, a record a unit goes back."""
    answers, sys.stdout = sys.stdout, sys.stderr  # what a library prints is no record
    for line in sys.stdin:
        identity = line.strip()
        print(json.dumps({"id": identity, **check(identity)}), file=answers, flush=True)


def run(module: str, identities: Sequence[str], out: Path, jobs: int) -> None:
    """Sends each identity to a worker of `module` and appends the records to `out`."""
    todo: queue.Queue[list[str]] = queue.Queue()
    size = max(1, min(CHUNK, -(-len(identities) // jobs)))
    for start in range(0, len(identities), size):
        todo.put(list(identities[start : start + size]))
    lock = threading.Lock()

    def loop(file: IO[str]) -> None:
        while not todo.empty():
            try:
                chunk = todo.get_nowait()
            except queue.Empty:
                return
            while chunk:
                _one_worker(module, chunk, file, lock)

    with out.open("a", buffering=1) as file:
        threads = [threading.Thread(target=loop, args=(file,), daemon=True) for _ in range(jobs)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def _one_worker(module: str, chunk: list[str], file: IO[str], lock: threading.Lock) -> None:
    """Works off `chunk` from the front until it is empty or the worker is gone."""
    command = [sys.executable, "-m", module, "--worker"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdin is not None and worker.stdout is not None
        while chunk:
            record = _ask(worker, worker.stdin, worker.stdout, chunk.pop(0))
            with lock:
                file.write(json.dumps(record) + "\n")
            if record["status"] in ("crash", "timeout"):
                return
        worker.stdin.close()


def _ask(worker: subprocess.Popen[str], questions: IO[str], answers: IO[str], identity: str) -> dict[str, Any]:
    late = threading.Timer(PATIENCE, worker.kill)
    late.start()
    try:
        questions.write(identity + "\n")
        questions.flush()
        answer = answers.readline()
    except BrokenPipeError:
        answer = ""
    finally:
        in_time = late.is_alive()
        late.cancel()
    if answer:
        return dict(json.loads(answer))
    if not in_time:
        return {"id": identity, "status": "timeout", "msg": f"no answer in {PATIENCE:.0f} s"}
    return {"id": identity, "status": "crash", "msg": f"the worker died, exit {worker.wait()}"}
