"""Part-of-speech tags of tweets, and word vectors learned from tweets.

Gimpel et al. (2011) tagged the tweets, and Owoputi et al. (2013) made the vectors; the paper's code
has both in data/Tweets.
"""

import re
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from experiments.data.dataset import Dataset, Part

TAGS = list("NOS^ZLMVAR!DP&TXY#@~UE$,G")
END, UNKNOWN = "</s>", "UUUNKKK"


def lines(path: Path) -> list[str]:
    if not path.is_file():
        raise FileNotFoundError(f"{path}: expected a text file, found none")
    try:
        text = path.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: expected text in UTF-8, found {error}") from error
    return text.removesuffix("\n").split("\n")  # splitlines() splits within words too


def read_vectors(path: Path) -> tuple[dict[str, int], Tensor]:
    """Reads the vectors, and the row of each word."""
    row, vectors = {}, []
    count = length = None
    for n, line in enumerate(lines(path), 1):
        word, *values = re.split(r"[ \t]+", line.rstrip(" \t"))
        if n == 1 and len(values) == 1 and word.isdecimal() and values[0].isdecimal():
            count, length = int(word), int(values[0])  # word2vec's header
            continue
        try:
            vector = [float(v) for v in values]
        except ValueError as error:
            raise ValueError(f"{path}:{n}: expected a word and numbers, found {error}") from error
        length = length or len(vector)
        if not vector or len(vector) != length:
            expected = f"a word and {length or 'some'} numbers"
            raise ValueError(f"{path}:{n}: expected {expected}, found {len(vector)} numbers")
        row[word] = len(vectors)
        vectors.append(vector)
    if count is not None and count != len(vectors):
        raise ValueError(f"{path}: expected {count} vectors, found {len(vectors)}")
    for word in (END, UNKNOWN):
        if word not in row:
            raise ValueError(f"{path}: expected a vector of {word}, found none")
    table = torch.tensor(vectors, dtype=torch.float64).float()
    if not table.isfinite().all():
        raise ValueError(f"{path}: expected finite numbers in float32, found others")
    return row, table


def read_tweets(path: Path, row: dict[str, int]) -> Part:
    """Reads each word's tag, and the rows of the word and its two neighbours."""
    windows, tags, words = [], [], []
    for n, line in enumerate([*lines(path), ""], 1):  # the last tweet may lack its blank line
        if line.strip():
            word, _, tag = line.partition("\t")
            if tag not in TAGS:
                expected = f"a word, a tab and a tag of {' '.join(TAGS)}"
                raise ValueError(f"{path}:{n}: expected {expected}, found {line!r}")
            words.append(row.get(word, row[UNKNOWN]))
            tags.append(TAGS.index(tag))
        elif words:
            windows.append(F.pad(torch.tensor(words), (1, 1), value=row[END]).unfold(0, 3, 1))
            words = []
    if not windows:
        raise ValueError(f"{path}: expected tweets, found none")
    return Part(torch.cat(windows), torch.tensor(tags))


def tweets(folder: Path) -> Dataset:
    row, table = read_vectors(folder / "embeddings-twitter.txt")
    parts = [read_tweets(folder / f"tweets-{n}.txt", row) for n in ("train", "dev", "devtest")]
    return Dataset("Tweets", *parts, len(TAGS), table)
