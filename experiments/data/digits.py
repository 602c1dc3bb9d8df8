"""The handwritten digits that scikit-learn ships: 1797 of 8 by 8 pixels, from 43 writers."""

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor
from torch.nn.functional import interpolate

from experiments.data.dataset import Dataset, Part


def split(images: Tensor, stands_in_for: str) -> Dataset:
    """Of each digit, a tenth validates and a fifth tests."""
    labels = torch.from_numpy(load_digits().target)
    rest, test = train_test_split(
        range(len(labels)), test_size=360, stratify=labels, random_state=0
    )
    train, validation = train_test_split(rest, test_size=180, stratify=labels[rest], random_state=0)
    parts = (Part(images[part], labels[part]) for part in (train, validation, test))
    return Dataset("digits", *parts, classes=10, stands_in_for=stands_in_for)


def digits() -> Dataset:
    """(n, 64), from 0 to 1."""
    return split(torch.tensor(load_digits().data, dtype=torch.float32) / 16, "MNIST")


def digit_images() -> Dataset:
    """(n, 1, 12, 12), from -1 to 1. Two poolings and a convolution leave one pixel of 12 by 12."""
    images = torch.tensor(load_digits().images, dtype=torch.float32).unsqueeze(1)
    enlarged = interpolate(images, size=(12, 12), mode="bilinear")
    return split(enlarged / 8 - 1, "CIFAR's images")
