"""experiments/data/tweets.py: words, their neighbours, their tags and their vectors."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from experiments.data.tweets import tweets
from tests.experiments.data import written_files as written

VECTORS = "embeddings-twitter.txt"
# The 25 tags of table 1 of Gimpel et al. (2011), in the order of the paper's code.
TAGS = list("NOS^ZLMVAR!DP&TXY#@~UE$,G")
# Of written_files.tweets.
END, UNKNOWN, ME, WIN, ONE = [0.0, 0.0], [9.0, 9.0], [1.0, 0.5], [-2.0, 0.2], [3.0, 3.0]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    written.tweets(tmp_path)
    return tmp_path


def test_examples(folder: Path) -> None:
    data = tweets(folder)
    assert (data.name, data.classes, data.augment) == ("Tweets", 25, None)
    expected = [
        ([END + ME + WIN, ME + WIN + ONE, WIN + ONE + END, END + UNKNOWN + END], "OV#R"),
        ([END + WIN + UNKNOWN, WIN + UNKNOWN + END], "VE"),
        ([END + ME + END, END + WIN + END], "ON"),
    ]
    for part, (vectors, tags) in zip(
        (data.train, data.validation, data.test), expected, strict=True
    ):
        assert torch.equal(data.inputs(part.x), torch.tensor(vectors))
        assert part.x.shape == (len(tags), 3)
        assert part.y.tolist() == [TAGS.index(tag) for tag in tags]
        assert part.y.dtype == part.x.dtype == torch.int64
    assert data.table.dtype == torch.float32 and data.input_shape() == (6,)


def test_tags(folder: Path) -> None:
    text = "".join(f"i\t{tag}\n" for tag in TAGS)
    (folder / "tweets-train.txt").write_text(text)
    assert tweets(folder).train.y.tolist() == list(range(25))


@pytest.mark.parametrize(
    "change",
    [
        lambda text: "5 2\n" + text,
        lambda text: text.replace(" ", "\t"),
        lambda text: text.replace("\t", " ").replace("\n", " \n"),
        lambda text: text.replace("\n", "\r\n"),
    ],
    ids=["header", "tabs", "spaces", "CRLF"],
)
def test_forms_of_vectors(change: Callable[[str], str], folder: Path) -> None:
    expected = tweets(folder)
    (folder / VECTORS).write_bytes(change((folder / VECTORS).read_text()).encode())
    assert torch.equal(tweets(folder).table, expected.table)
    assert torch.equal(tweets(folder).train.x, expected.train.x)


def test_words_that_only_look_like_lines(folder: Path) -> None:
    """NEL, the line separator and the no-break space are characters of words."""
    words = ["\x85", "\u2028", "\xa0", "☺"]
    with (folder / VECTORS).open("a", encoding="utf-8") as file:
        file.writelines(f"{word}\t{n} {n}\n" for n, word in enumerate(words, 10))
    text = "".join(f"{word}\tE\n\n" for word in words)
    (folder / "tweets-dev.txt").write_text(text, "utf-8")
    data = tweets(folder)
    assert data.inputs(data.validation.x)[:, 2].tolist() == [10, 11, 12, 13]


@pytest.mark.parametrize("name", [VECTORS, "tweets-train.txt", "tweets-dev.txt"])
def test_missing(name: str, folder: Path) -> None:
    (folder / name).unlink()
    with pytest.raises(FileNotFoundError, match=f"{name}: expected .*, found none"):
        tweets(folder)


GOOD = "</s>\t0 0\nUUUNKKK\t9 9\n"
WRONG = {
    "no tab": (
        "tweets-train.txt",
        "i\tO\nwin V\n",
        ":2: expected a word, a tab and a tag .*'win V'",
    ),
    "no tag": ("tweets-train.txt", "i\t\n", r":1: .*found 'i\\t'"),
    "tag": ("tweets-dev.txt", "i\tO\n\nwin\tQ\n", r":3: .*tag of N O S .*found 'win\\tQ'"),
    "two tags": ("tweets-dev.txt", "i\tNO\n", r":1: .*found 'i\\tNO'"),
    "no tweets": ("tweets-devtest.txt", "\n\n", ": expected tweets, found none"),
    "not text": ("tweets-devtest.txt", "\udcff\tN\n", ": expected text in UTF-8, found .*0xff"),
    "lengths": (VECTORS, GOOD + "i\t1\n", ":3: expected a word and 2 numbers, found 1 numbers"),
    "no vector": (VECTORS, "i\n" + GOOD, ":1: expected a word and some numbers, found 0"),
    "word": (VECTORS, GOOD + "i\t1 x\n", ":3: expected a word and numbers, found .*'x'"),
    "not finite": (VECTORS, GOOD + "i\t1 nan\n", ": expected finite numbers"),
    "too large": (VECTORS, GOOD + "i\t1 1e39\n", ": expected finite numbers"),
    "count": (VECTORS, "3 2\n" + GOOD, ": expected 3 vectors, found 2"),
    "length": (VECTORS, "2 3\n" + GOOD, ":2: expected a word and 3 numbers, found 2"),
    "no </s>": (VECTORS, GOOD.replace("</s>", "<s>"), ": expected a vector of </s>, found none"),
    "no UUUNKKK": (VECTORS, GOOD[:9], ": expected a vector of UUUNKKK, found none"),
    "empty": (VECTORS, "", ":1: expected a word and some numbers, found 0"),
}


@pytest.mark.parametrize("name, text, message", WRONG.values(), ids=WRONG)
def test_wrong_file(name: str, text: str, message: str, folder: Path) -> None:
    (folder / name).write_text(text, "utf-8", errors="surrogateescape")
    with pytest.raises(ValueError, match=name + message):
        tweets(folder)
