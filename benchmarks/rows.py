"""The rows of the table: name, unit, what we aim at, and what peers need for the same."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.timing import Pair

UNITS = {"us": 1e6, "ms": 1e3, "s": 1.0}


@dataclass(frozen=True)
class Row:
    """An aim is a time in the row's unit, or a multiple of CPU torch's time in the same run.

    Aims in time were set on one core of an AMD Zen 1. Where CPU torch's time there is known, the aim is also taken
    relative to it, which a faster machine does not give away.
    """

    key: str
    title: str
    unit: str
    at_most: float | None = None
    at_most_ratio: float | None = None
    zen1_cpu: float | None = None
    peers: str = ""

    @property
    def aim(self) -> str:
        if self.at_most is not None:
            return f"<= {self.at_most:g} {self.unit}"
        return f"<= {self.at_most_ratio:g}x CPU" if self.at_most_ratio is not None else ""

    @property
    def scaled_ratio(self) -> float | None:
        """The aim as a multiple of CPU torch's time."""
        if self.at_most is not None and self.zen1_cpu is not None:
            return self.at_most / self.zen1_cpu
        return self.at_most_ratio

    def met(self, pair: Pair) -> bool | None:
        """Whether the aim is met as it was written."""
        if self.at_most is None:
            return self.met_scaled(pair)
        return None if pair.neuron is None else pair.neuron.wall * UNITS[self.unit] <= self.at_most

    def met_scaled(self, pair: Pair) -> bool | None:
        """Whether it is met relative to CPU torch in the same run."""
        if self.scaled_ratio is None or pair.cpu is None or pair.neuron is None:
            return None
        return pair.neuron.wall / pair.cpu.wall <= self.scaled_ratio


# Peers: measured on one core of an AMD Zen 1, one thread, float32, with their own definitions of the networks; AWS: its
# own published figure on Trainium. CPU torch took there: add 3.4, add of 1M 1078, chain 303 us; MLP step 5.2, ResNet-18
# 142, GPT-2 1194 ms.
ROWS = (
    Row(
        "add_4_async",
        "a + b, 4 elements, asynchronous",
        "us",
        20,
        zen1_cpu=3.44,
        peers="torch_xla 146, torchax 582, AWS 55-65",
    ),
    Row(
        "add_4_sync",
        "a + b, 4 elements, with a wait",
        "us",
        28,
        zen1_cpu=3.94,
        peers="torch_xla 277, torchax 586, tinygrad 6697",
    ),
    Row("add_1m_async", "a + b, 1M elements, asynchronous", "us", peers="torch_xla 1494, torchax 3051"),
    Row("add_1m_sync", "a + b, 1M elements, with a wait", "us", peers="torch_xla 1670-1807, torchax 3068"),
    Row(
        "chain_30",
        "chain of 30 dependent ops on 2048 elements",
        "us",
        900,
        zen1_cpu=303,
        peers="torch_xla lazy 1625, eager 6579; torchax 26874",
    ),
    Row("new_shape_cold", "new shape of two ops, compiled", "ms", 70, peers="torch_xla lazy 50, eager 82; torchax 155"),
    Row("new_shape_disk", "new shape of two ops, from disk", "ms", 6),
    Row("mlp_step", "MLP train step", "ms", 10, zen1_cpu=5.15, peers="torch_xla lazy 8.8, eager 17.3; tinygrad 1196"),
    Row(
        "resnet18", "ResNet-18 forward", "ms", at_most_ratio=2.3, peers="torch_xla 198-229, torchax 319, tinygrad 1516"
    ),
    Row(
        "gpt2", "GPT-2 small forward", "ms", at_most_ratio=1.1, peers="torchax 1646, torch_xla 1666-2379, tinygrad 9173"
    ),
    Row("first_mlp_step_cold", "first MLP step, compiled", "s", peers="torch_xla 1.05-1.8, tinygrad 12"),
    Row("first_mlp_step_disk", "first MLP step, from disk", "s"),
    Row(
        "first_resnet18_cold",
        "first ResNet-18 forward, compiled",
        "s",
        peers="torchax 6.8, torch_xla 7.6-8.0, tinygrad 47",
    ),
    Row("first_resnet18_disk", "first ResNet-18 forward, from disk", "s"),
    Row("first_gpt2_cold", "first GPT-2 forward, compiled", "s", peers="torchax 5.0, torch_xla 6.1-10.3, tinygrad 42"),
    Row("first_gpt2_disk", "first GPT-2 forward, from disk", "s"),
    Row("import", "import torch", "s", peers="torchax 3.96, tinygrad 5.35, torch_xla 8.9 (torch alone 3.1)"),
    Row("autoload", "what the backend adds to import torch", "ms", 30),
    Row(
        "first_result_cold",
        "first result after import, compiled",
        "s",
        1.0,
        peers="torchax 3.4, tinygrad 4.4, torch_xla 4.8-5.0",
    ),
    Row("first_result_disk", "first result after import, from disk", "s", 1.0),
)
