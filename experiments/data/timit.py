"""TIMIT (LDC93S1): the phone at each frame of speech, from the frame and five on each side."""

from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from experiments.data import speech
from experiments.data.dataset import Dataset, Part

REACH = 5

# Speakers of the folder TEST: kaldi's list egs/timit/s5/conf/dev_spk.list, and the core test set of
# TIMIT's documentation, two men and a woman of each of the eight regions.
DEVELOPMENT = """
    faks0 fdac1 fjem0 mgwt0 mjar0 mmdb1 mmdm2 mpdf0 fcmh0 fkms0 mbdg0 mbwm0 mcsh0 fadg0 fdms0 fedw0
    mgjf0 mglb0 mrtk0 mtaa0 mtdt0 mthc0 mwjg0 fnmr0 frew0 fsem0 mbns0 mmjr0 mdls0 mdlf0 mdvc0 mers0
    fmah0 fdrw0 mrcs0 mrjm4 fcal1 mmwh0 fjsj0 majc0 mjsw0 mreb0 fgjd0 fjmg0 mroa0 mteb0 mjfc0 mrjr0
    fmml0 mrws1
"""
CORE_TEST = """
    mdab0 mwbt0 felc0 mtas1 mwew0 fpas0 mjmp0 mlnt0 fpkt0 mlll0 mtls0 fjlm0
    mbpm0 mklt0 fnlp0 mcmj0 mjdh0 fmgd0 mgrt0 mnjm0 fdhc0 mjln0 mpam0 fmld0
"""

# Lee and Hon (1989) count 61 phones as 39, silence the last here, and leave the glottal stop q out.
FOLDED = """
    aa ao, ae, ah ax ax-h, aw, ay, b, ch, d, dh, dx, eh, er axr, ey, f, g, hh hv, ih ix, iy, jh, k,
    l el, m em, n en nx, ng eng, ow, oy, p, r, s, sh zh, t, th, uh, uw ux, v, w, y, z,
    pcl tcl kcl bcl dcl gcl h# pau epi
"""
CLASSES = FOLDED.count(",") + 1
NO_CLASS = -1
CLASS = {
    phone: number for number, phones in enumerate(FOLDED.split(",")) for phone in phones.split()
}
CLASS["q"] = NO_CLASS


class Utterance(NamedTuple):
    sound: Path
    phones: Path


def utterances(folder: Path, part: str) -> dict[str, list[Utterance]]:
    """Lists each speaker's, without the dialect sentences SA, which all speakers read."""
    # Copies of TIMIT differ in case, and some have RIFF files: SX1.WAV.wav in addition to or in
    # place of SX1.WAV.
    files: dict[tuple[Path, str], Path] = {}
    for path in sorted(folder.glob("*/*/*/*")):
        if path.parents[2].name.upper() == part:
            files.setdefault((path.parent, path.name.upper().replace(".WAV.WAV", ".WAV")), path)
    result: dict[str, list[Utterance]] = {}
    for (directory, name), sound in files.items():
        if name.endswith(".WAV") and not name.startswith("SA"):
            phones = files.get((directory, name.replace(".WAV", ".PHN")))
            if phones is None:
                raise FileNotFoundError(f"{sound}: expected a .PHN file next to it, found none")
            result.setdefault(directory.name.lower(), []).append(Utterance(sound, phones))
    if not result:
        raise FileNotFoundError(f"{folder / part}: expected DR1/FCJF0/SI1027.WAV etc., found none")
    return result


def of_speakers(of: dict[str, list[Utterance]], names: list[str], folder: Path) -> list[Utterance]:
    if missing := sorted(set(names) - of.keys()):
        raise FileNotFoundError(
            f"{folder / 'TEST'}: expected {len(names)} speakers, found none of {' '.join(missing)}"
        )
    return [utterance for name in names for utterance in of[name]]


def read_phones(path: Path) -> Tensor:
    """Reads the first samples of phones, the samples after their last ones, and their classes."""
    rows, end = [], 0
    for n, line in enumerate(path.read_text("ascii", errors="replace").splitlines(), 1):
        try:
            first, after, phone = line.split()
            row = int(first), int(after), CLASS[phone]
        except (ValueError, KeyError):
            expected = "two numbers of samples and a phone"
            raise ValueError(f"{path}:{n}: expected {expected}, found {line!r}") from None
        if not end <= row[0] <= row[1]:
            raise ValueError(f"{path}:{n}: expected times from {end} on that grow, found {line!r}")
        end = row[1]
        rows.append(row)
    if not rows:
        raise ValueError(f"{path}: expected phones, found none")
    return torch.tensor(list(zip(*rows, strict=True)))


def read(utterance: Utterance) -> tuple[Tensor, Tensor]:
    """Reads the features of the frames, and the classes of the phones at their centres."""
    samples = speech.read(utterance.sound)
    first, after, classes = read_phones(utterance.phones)
    if len(samples) <= first[-1]:
        raise ValueError(
            f"{utterance.sound}: expected the last phone of {utterance.phones.name} from sample "
            f"{first[-1]} on, found {len(samples)} samples"
        )
    frames = speech.features(samples)
    centres = torch.arange(len(frames)) * speech.HOP + speech.WINDOW // 2
    phone = torch.bucketize(centres, first, right=True) - 1
    within = (phone >= 0) & (centres < after[phone])
    return frames, torch.where(within, classes[phone], NO_CLASS)


def timit(folder: Path) -> Dataset:
    train, test = utterances(folder, "TRAIN"), utterances(folder, "TEST")
    tables, parts, ends, count = [], [], [], 0
    for part in (
        [utterance for name in sorted(train) for utterance in train[name]],
        of_speakers(test, DEVELOPMENT.split(), folder),
        of_speakers(test, CORE_TEST.split(), folder),
    ):
        windows, targets = [], []
        for utterance in part:
            frames, classes = read(utterance)
            number = torch.arange(len(frames)).unsqueeze(1) + torch.arange(-REACH, REACH + 1)
            labelled = classes != NO_CLASS
            windows.append(count + number.clamp(0, len(frames) - 1)[labelled])
            targets.append(classes[labelled])
            tables.append(frames)
            count += len(frames)
        parts.append(Part(torch.cat(windows), torch.cat(targets)))
        ends.append(count)
    table = torch.cat(tables)
    deviation, mean = torch.std_mean(table[: ends[0]], dim=0, correction=0)
    return Dataset("TIMIT", *parts, CLASSES, table.sub_(mean).div_(deviation))
