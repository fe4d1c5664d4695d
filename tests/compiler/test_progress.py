"""What a terminal is told about a compilation that takes long."""

from __future__ import annotations

import io
import sys
import time

import pytest

from torch_neuronx.compiler import progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "AFTER", 0.05)
    monkeypatch.setattr(progress, "EVERY", 0.01)


def made(out: io.StringIO, monkeypatch: pytest.MonkeyPatch, seconds: float) -> str:
    monkeypatch.setattr(sys, "stderr", out)
    with progress.shown("graph_0_forward"):
        time.sleep(seconds)
    return out.getvalue() if not out.closed else ""


def test_a_long_one_is_shown_and_closed_with_its_time(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    text = made(Terminal(), monkeypatch, 0.5)
    assert "\rneuron: compiling graph_0_forward, 0 s" in text
    assert text.rstrip("\n").split("\r")[-1].startswith("neuron: compiled graph_0_forward in 0.")
    assert text.endswith(" s\n")


def test_a_short_one_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    assert made(Terminal(), monkeypatch, 0.01) == ""


def test_nothing_is_written_to_a_file(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert made(io.StringIO(), monkeypatch, 0.2) == ""


def test_a_terminal_that_closes_is_no_error(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    class Closing(Terminal):
        def write(self, text: str) -> int:
            raise OSError("gone")

    assert made(Closing(), monkeypatch, 0.2) == ""


def test_an_error_comes_through(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    with pytest.raises(KeyError), progress.shown("x"):
        raise KeyError("x")
