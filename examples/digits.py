"""Handwritten digits: a small convolutional network trained on scikit-learn's 8x8 images, on any device."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - its usual name

SEED = 0
EPOCHS = 8
BATCH = 64
PEAK_LEARNING_RATE = 6e-3


@dataclass(frozen=True)
class Split:
    """Images in [0, 1] of shape (n, 1, 8, 8) and their labels."""

    images: Tensor
    labels: Tensor

    def to(self, device: str) -> Split:
        return Split(self.images.to(device), self.labels.to(device))


@dataclass(frozen=True)
class Outcome:
    """What one training gave. `losses` has the mean loss of each epoch."""

    accuracy: float
    losses: list[float]
    first_epoch_seconds: float
    seconds: float


def splits() -> tuple[Split, Split]:
    """1437 images to learn from and 360 to be tested on, the same in every run."""
    images, labels = load_digits(return_X_y=True)
    parts = train_test_split(images, labels, test_size=360, random_state=SEED, stratify=labels)
    train_images, test_images, train_labels, test_labels = (torch.from_numpy(part) for part in parts)
    return _split(train_images, train_labels), _split(test_images, test_labels)


def _split(images: Tensor, labels: Tensor) -> Split:
    return Split(images.float().reshape(-1, 1, 8, 8) / 16, labels)


def network() -> nn.Sequential:
    """Two convolutions with batch norm and pooling, 21,034 parameters, the same weights in every run."""
    torch.manual_seed(SEED)
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1, bias=False),  # batch norm takes the mean away: a bias would do nothing
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(256, 10),
    )


def train(device: str, report: Callable[[int, float], None] = lambda epoch, loss: None) -> Outcome:
    """Trains on `device`, then counts right answers on the test images. `report` hears of every epoch."""
    start = time.perf_counter()
    learn, test = (split.to(device) for split in splits())
    model = network().to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    steps = len(learn.labels) // BATCH
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, PEAK_LEARNING_RATE, EPOCHS * steps)
    shuffle = torch.Generator().manual_seed(SEED)
    losses: list[float] = []
    first = 0.0
    for epoch in range(EPOCHS):
        order = torch.randperm(len(learn.labels), generator=shuffle)[: steps * BATCH].to(device)
        losses.append(_epoch(model, learn, order, optimizer, schedule))
        first = first or time.perf_counter() - start
        report(epoch, losses[-1])
    return Outcome(accuracy(model, test), losses, first, time.perf_counter() - start)


def _epoch(
    model: nn.Module,
    learn: Split,
    order: Tensor,
    optimizer: torch.optim.Optimizer,
    schedule: torch.optim.lr_scheduler.LRScheduler,
) -> float:
    """One pass over the images in the given order; its mean loss, read from the device once."""
    model.train()
    batches = order.split(BATCH)
    total = torch.zeros((), device=order.device)
    for batch in batches:
        loss = F.cross_entropy(model(learn.images[batch]), learn.labels[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        total += loss.detach()
    return total.item() / len(batches)


@torch.no_grad()
def accuracy(model: nn.Module, test: Split) -> float:
    """The share of test images named rightly."""
    model.eval()
    return (model(test.images).argmax(1) == test.labels).float().mean().item()
