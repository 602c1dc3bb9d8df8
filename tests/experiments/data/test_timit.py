"""experiments/data/timit.py: speakers, frames and their phones."""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from experiments.data import timit
from experiments.data.dataset import Dataset
from tests.experiments.data import written_files as written
from tests.experiments.data.test_speech import NOISE, cepstra, of_features, soundfile

DEVELOPMENT, CORE_TEST = timit.DEVELOPMENT.split(), timit.CORE_TEST.split()
TRAIN = ["fcjf0", "mklw0"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tree that no test changes."""
    path = tmp_path_factory.mktemp("timit")
    written.timit(path, TRAIN, [*DEVELOPMENT, *CORE_TEST, "mdac0"])
    return path


@pytest.fixture(scope="module")
def data(whole: Path) -> Dataset:
    return timit.timit(whole)


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    return shutil.copytree(whole, tmp_path / "TIMIT")


def test_phones() -> None:
    """Lee and Hon's 39 of 61 phones."""
    folded = {"ao": "aa", "ax": "ah", "ax-h": "ah", "axr": "er", "hv": "hh", "ix": "ih", "el": "l"}
    folded |= {"em": "m", "en": "n", "nx": "n", "eng": "ng", "zh": "sh", "ux": "uw"}
    silences = ["pcl", "tcl", "kcl", "bcl", "dcl", "gcl", "h#", "pau", "epi"]
    for phone, other in [*folded.items(), *((phone, "h#") for phone in silences)]:
        assert timit.CLASS[phone] == timit.CLASS[other]
    alone = timit.CLASS.keys() - folded.keys() - set(silences) - {"q"}
    assert len(timit.CLASS) == 61 and len(alone) == 38
    classes = [timit.CLASS[phone] for phone in [*alone, "h#"]]
    assert sorted(classes) == list(range(39)) and timit.CLASS["q"] == -1


def test_speakers() -> None:
    """Of the core test, two men and a woman of each of 8 regions; 50 others validate."""
    assert len(set(CORE_TEST) | set(DEVELOPMENT)) == 24 + 50
    assert [name[0] for name in CORE_TEST].count("f") == 8


@of_features
def test_classes_of_frames(tmp_path: Path) -> None:
    """A frame has the phone at its centre, sample 160 t + 200 of frame t."""
    phones = "201 360 h#\n360 361 iy\n361 530 s\n900 1000 zh\n1000 1160 v\n"
    written.utterance(tmp_path, "SX1", NOISE[:1800], phones)
    frames, classes = timit.read(timit.Utterance(tmp_path / "SX1.WAV", tmp_path / "SX1.PHN"))
    iy, s, v = (timit.CLASS[phone] for phone in ("iy", "s", "v"))
    # Centres: 200 before all phones, 360, 520, 680 and 840 in a gap, 1000, 1160 to 1480 after all.
    assert classes.tolist() == [-1, iy, s, -1, -1, v, -1, -1, -1]
    assert len(frames) == 9


@of_features
def test_examples(whole: Path, data: Dataset) -> None:
    assert (data.name, data.classes, data.augment) == ("TIMIT", 39, None)
    # An utterance has 8 frames; three, at samples 520, 680 and 840, are of a glottal stop.
    assert data.table.shape == (8 * (2 + 50 + 24), 26) and data.table.dtype == torch.float32
    start = 0
    for part, utterances in ((data.train, 2), (data.validation, 50), (data.test, 24)):
        windows = [
            [start + 8 * u + min(max(t + offset, 0), 7) for offset in range(-5, 6)]
            for u in range(utterances)
            for t in (0, 1, 5, 6, 7)
        ]
        assert part.x.tolist() == windows and part.x.dtype == torch.int64
        classes = [timit.CLASS[phone] for phone in ("h#", "h#", "aa", "aa", "aa")]
        assert part.y.tolist() == classes * utterances and part.y.dtype == torch.int64
        start += 8 * utterances
    assert data.input_shape() == (286,)

    names = [
        ("TRAIN", "FCJF0"),
        ("TRAIN", "MKLW0"),
        *(("TEST", n) for n in DEVELOPMENT + CORE_TEST),
    ]
    sounds = [whole / part / "DR1" / name.upper() / "SX1.WAV" for part, name in names]
    frames = np.concatenate([cepstra(soundfile.read(path)[0]) for path in sounds])
    of_train = frames[:16]
    expected = (frames - of_train.mean(0)) / of_train.std(0)
    assert np.abs(data.table[:, :12].numpy() - expected).max() < 1e-3
    standardised = data.table[:16].numpy()
    assert np.abs(standardised.mean(0)).max() < 1e-5
    assert standardised.std(0) == pytest.approx(np.ones(26), abs=1e-5)


def lower(folder: Path) -> None:
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rename(path.with_name(path.name.lower()))


def riff(folder: Path, names: str, original: bool) -> None:
    for path in list(folder.rglob("*.WAV")):
        samples, rate = soundfile.read(path, dtype="int16")
        soundfile.write(path.with_name(f"{path.stem}{names}"), samples, rate, format="WAV")
        if not original:
            path.unlink()


COPIES = {
    "lower case": lower,
    ".WAV.wav beside": lambda folder: riff(folder, ".WAV.wav", original=True),
    ".WAV.wav": lambda folder: riff(folder, ".WAV.wav", original=False),
    ".wav": lambda folder: riff(folder, ".wav", original=False),
    ".wav beside": lambda folder: riff(folder, ".wav", original=True),
}


@of_features
@pytest.mark.parametrize("change", COPIES.values(), ids=COPIES)
def test_copies(change: Callable[[Path], None], data: Dataset, folder: Path) -> None:
    change(folder)
    found = timit.timit(folder)
    assert torch.equal(found.table, data.table) and torch.equal(found.train.y, data.train.y)


def test_missing(folder: Path) -> None:
    test = folder / "TEST"
    for name in ("MDAB0", "FAKS0"):
        shutil.rmtree(test / "DR1" / name)
        with pytest.raises(FileNotFoundError, match=f"TEST: expected .* none of {name.lower()}$"):
            timit.timit(folder)
        shutil.copytree(test / "DR1" / "MDAC0", test / "DR1" / name)
    sound = test / "DR1" / "FAKS0" / "SX1.WAV"
    sound.with_suffix(".PHN").unlink()
    with pytest.raises(FileNotFoundError, match=f"{sound}: expected a .PHN file next to it, found"):
        timit.timit(folder)
    shutil.rmtree(test)
    with pytest.raises(FileNotFoundError, match=f"{test}: expected .*WAV etc., found none"):
        timit.timit(folder)


PHONES = {
    "phone": ("0 500 h#\n500 900 xx\n", ":2: expected two numbers .* a phone, found '500 900 xx'"),
    "number": ("0 5e2 h#\n", ":1: expected two numbers .* found '0 5e2 h#'"),
    "columns": ("0 500\n", ":1: expected two numbers .* found '0 500'"),
    "overlap": ("0 500 h#\n499 900 aa\n", ":2: expected times from 500 on .* found '499 900 aa'"),
    "decreasing": (
        "0 500 h#\n700 600 aa\n",
        ":2: expected times from 500 on .* found '700 600 aa'",
    ),
    "empty": ("", ": expected phones, found none"),
    "not text": ("\udcff\udcfe", ":1: expected two numbers"),
}


@pytest.mark.parametrize("text, message", PHONES.values(), ids=PHONES)
def test_wrong_phones(text: str, message: str, tmp_path: Path) -> None:
    written.utterance(tmp_path, "SX1", NOISE, "")
    path = tmp_path / "SX1.PHN"
    path.write_text(text, errors="surrogateescape")
    with pytest.raises(ValueError, match=f"{path}{message}"):
        timit.read(timit.Utterance(tmp_path / "SX1.WAV", path))


def test_sound_that_is_cut_short(tmp_path: Path) -> None:
    path = tmp_path / "SX1.WAV"
    written.utterance(tmp_path, "SX1", NOISE, "0 900 h#\n900 1600 ao\n")
    path.write_bytes(path.read_bytes()[: 1024 + 2 * 900])
    expected = "the last phone of SX1.PHN from sample 900 on, found 900 samples"
    with pytest.raises(ValueError, match=f"{path}: expected {expected}"):
        timit.read(timit.Utterance(path, tmp_path / "SX1.PHN"))
