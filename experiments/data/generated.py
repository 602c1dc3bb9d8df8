"""Generated corpora with a known Bayes error, instead of two that are not freely available.

They have the shapes of the GELU paper's tasks (sections 3.3 and 3.4). Hidden Markov models make
them: the states are tags or phones, the observations words or frames. A seed gives the same corpus
on every processor, except for draws that the last bit of exp decides (one in 10^15).
"""

import numpy as np
import torch
from scipy.spatial.distance import cdist

from experiments.data.dataset import Dataset, Part
from experiments.data.hidden_markov import (
    Floats,
    Integers,
    bayes_error,
    draw,
    normalised,
    posterior,
    sample,
    windows,
)

TAGS, WORDS, DIMENSIONS, TAG_WINDOW = 25, 2000, 50, 3
PHONES, FEATURES, PHONE_WINDOW = 39, 26, 11
TWEET, UTTERANCE = (5, 25), (300, 300)  # the shortest and the longest


def _lengths(tokens: int, limits: tuple[int, int], generator: np.random.Generator) -> Integers:
    """Lengths of sentences that add up to `tokens`; the last sentence is cut short."""
    lengths = generator.integers(*limits, size=tokens // limits[0] + 1, endpoint=True)
    lengths = np.diff(np.minimum(np.cumsum(lengths), tokens), prepend=0)
    return lengths[lengths > 0]


def _transition(states: int, generator: np.random.Generator) -> Floats:
    """Uneven enough that order matters: the likeliest of 25 successors has 0.3 on average."""
    return normalised(np.exp(1.5 * generator.standard_normal((states, states))))


def tweets(tokens: int = 15_000, seed: int = 0) -> Dataset:
    """Tagged tweets: `tokens` words to train on, and a third as many for each other part.

    A word has two tags and, in 1 % of its uses, any other. Its vector is the mean of its two tags'
    vectors, weighted by their frequency, plus noise: only its neighbours tell which tag it has. The
    last row of the table is `</s>`, which pads both ends of a tweet.

    The Bayes error is about 10 % (9 to 11 % for the first seeds). It is estimated by the test
    windows' exact posteriors, with a standard error of 0.2 % where there are 5,000.
    """
    generator = np.random.default_rng(seed)
    transition = _transition(TAGS, generator)

    pair = generator.integers(TAGS, size=(WORDS, 2))
    second = generator.uniform(0, 0.5, WORDS)
    share = np.stack([1 - second, second], axis=1)
    tags = np.full((WORDS, TAGS), 0.01 / TAGS)
    np.add.at(tags, (np.arange(WORDS)[:, None], pair), 0.99 * share)
    # The Zipf-Mandelbrot law: the frequency is proportional to 1 / (rank + 2.7).
    emission = normalised(tags.T / (np.arange(1, WORDS + 1) + 2.7))

    vectors = generator.standard_normal((TAGS, DIMENSIONS))
    table = 0.1 * generator.standard_normal((WORDS + 1, DIMENSIONS))
    table[:WORDS] += (share[:, :, None] * vectors[pair]).sum(axis=1)

    parts = []
    for count in (tokens, tokens // 3, tokens // 3):
        lengths = _lengths(count, TWEET, generator)
        states = sample(transition, lengths, generator)
        words = draw(emission, states, generator)
        places, inside = windows(lengths, TAG_WINDOW)
        x = np.where(inside, words[places], WORDS)
        parts.append(Part(torch.from_numpy(x), torch.from_numpy(states)))

    # The part that was made last is the test.
    of_tags = posterior(transition, np.log(emission[:, words].T), lengths, TAG_WINDOW)
    return Dataset(
        "generated tweets",
        *parts,
        classes=TAGS,
        table=torch.from_numpy(table).float(),
        bayes_error=bayes_error(of_tags),
        stands_in_for="tweets with part-of-speech tags (Gimpel et al., 2011)",
    )


def speech(frames: int = 20_000, seed: int = 0) -> Dataset:
    """Utterances in frames: `frames` to train on, and a third as many for each other part.

    A phone lasts 14 frames on average. A frame is the mean of its phone plus Gaussian noise of one
    standard deviation. Beyond an end of an utterance, a window repeats the frame at that end.

    The Bayes error is about 23 % (22 to 27 % for the first seeds). It is estimated by the test
    windows' exact posteriors, with a standard error of 0.8 % where there are 6,666.
    """
    stay, noise = 1 - 1 / 14, 4.4
    generator = np.random.default_rng(seed)
    transition = stay * np.eye(PHONES) + (1 - stay) * _transition(PHONES, generator)
    means = generator.standard_normal((PHONES, FEATURES))

    parts, made = [], []
    for count in (frames, frames // 3, frames // 3):
        lengths = _lengths(count, UTTERANCE, generator)
        states = sample(transition, lengths, generator)
        places, _ = windows(lengths, PHONE_WINDOW)
        x = sum(map(len, made)) + places
        made.append(means[states] + noise * generator.standard_normal((count, FEATURES)))
        parts.append(Part(torch.from_numpy(x), torch.from_numpy(states)))

    # The part that was made last is the test.
    log_likelihood = -cdist(made[-1], means, "sqeuclidean") / (2 * noise**2)
    of_phones = posterior(transition, log_likelihood, lengths, PHONE_WINDOW)
    table = (np.concatenate(made) - made[0].mean(axis=0)) / made[0].std(axis=0)
    return Dataset(
        "generated speech",
        *parts,
        classes=PHONES,
        table=torch.from_numpy(table).float(),
        bayes_error=bayes_error(of_phones),
        stands_in_for="TIMIT",
    )
