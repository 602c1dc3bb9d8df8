"""Generated corpora: exact posteriors, windows, and the resulting Bayes error."""

from itertools import product

import numpy as np
import pytest
import torch

pytest.importorskip("scipy")
from experiments.data import generated  # noqa: E402
from experiments.data import hidden_markov as hmm  # noqa: E402
from experiments.data.hidden_markov import normalised  # noqa: E402

TWO_STATES = np.array([[0.9, 0.1], [0.3, 0.7]])


def a_chain(states, seed=0):
    return normalised(np.random.default_rng(seed).uniform(0.05, 1, (states, states)))


def sentences(y, lengths):
    return np.split(np.asarray(y), np.cumsum(lengths)[:-1])


def test_the_stationary_distribution():
    assert hmm.stationary(TWO_STATES) == pytest.approx([0.75, 0.25])  # 0.1 p0 = 0.3 p1
    transition = a_chain(7)
    assert hmm.stationary(transition) == pytest.approx(np.linalg.matrix_power(transition, 99)[0])


def by_enumeration(transition, likelihoods, centre):
    """P(state at centre | all observations), summed over every path of states."""
    states = len(transition)
    start = np.linalg.matrix_power(transition, 99)[0]
    total = np.zeros(states)
    for path in product(range(states), repeat=len(likelihoods)):
        weight = start[path[0]]
        for left, right in zip(path, path[1:], strict=False):
            weight *= transition[left, right]
        for likelihood, state in zip(likelihoods, path, strict=True):
            weight *= likelihood[state]
        total[path[centre]] += weight
    return total / total.sum()


@pytest.mark.parametrize("width", [1, 3, 5])
def test_the_posterior_of_every_place(width):
    """In sentences shorter than the window, of its width and longer."""
    transition, lengths = a_chain(3), np.array([1, 2, 3, 6])
    log_likelihood = np.random.default_rng(1).normal(0, 2, (lengths.sum(), 3))
    expected, half = [], width // 2
    for sentence in sentences(np.exp(log_likelihood), lengths):
        for i in range(len(sentence)):
            first = max(0, i - half)
            seen = sentence[first : i + half + 1]
            expected.append(by_enumeration(transition, seen, centre=i - first))
    actual = hmm.posterior(transition, log_likelihood, lengths, width)
    np.testing.assert_allclose(actual, expected, rtol=1e-12)


def test_likelihoods_that_underflow():
    """exp(-800) is 0, so likelihoods are scaled to 1 for the likeliest state."""
    log_likelihood = np.array([[-1000.0, -1001.0], [-800.0, -800.0]])
    actual = hmm.posterior(TWO_STATES, log_likelihood, np.array([2]), 3)
    expected = hmm.posterior(TWO_STATES, np.array([[0.0, -1.0], [0, 0]]), np.array([2]), 3)
    np.testing.assert_allclose(actual, expected, rtol=1e-12)


def test_windows():
    places, inside = hmm.windows(np.array([2, 1, 3]), 3)
    assert places.tolist() == [[0, 0, 1], [0, 1, 1], [2, 2, 2], [3, 3, 4], [3, 4, 5], [4, 5, 5]]
    assert (~inside).nonzero()[0].tolist() == [0, 1, 2, 2, 3, 5]
    assert (~inside).nonzero()[1].tolist() == [0, 2, 0, 2, 0, 2]


def test_draws_have_their_probabilities():
    """Counts of 40,000 draws from each row, within 5 standard deviations."""
    rows, n = np.array([[0.2, 0.0, 0.8], [0.0, 0.5, 0.5], [1.0, 0.0, 0.0]]), 40_000
    which = np.repeat(np.arange(3), n)
    drawn = hmm.draw(rows, which, np.random.default_rng(0))
    counts = np.stack([np.bincount(drawn[which == i], minlength=3) for i in range(3)])
    assert (np.abs(counts - n * rows) <= 5 * np.sqrt(n * rows * (1 - rows))).all()


def test_states_follow_the_chain():
    """Starts and steps of 30,000 sentences of three, within 5 standard deviations."""
    n = 30_000
    y = hmm.sample(TWO_STATES, np.full(n, 3), np.random.default_rng(0)).reshape(n, 3)
    for place in range(3):
        assert abs(y[:, place].mean() - 0.25) < 5 * np.sqrt(0.25 * 0.75 / n)
    for t, state in product(range(2), range(2)):
        then, p = y[y[:, t] == state, t + 1], TWO_STATES[state, 1]
        assert abs(then.mean() - p) < 5 * np.sqrt(p * (1 - p) / len(then))


@pytest.fixture(scope="module", params=["tweets", "speech"])
def corpus(request):
    """A corpus, and the arguments and results of its calls to hidden_markov."""
    make, calls = getattr(generated, request.param), {}
    with pytest.MonkeyPatch.context() as patch:
        for name in ("sample", "posterior"):
            original = getattr(hmm, name)

            def spy(*arguments, name=name, original=original):
                result = original(*arguments)
                calls.setdefault(name, []).append((arguments, result))
                return result

            patch.setattr(generated, name, spy)
        return make(), calls


def test_shapes(corpus):
    data, _ = corpus
    size, width, features = (15_000, 3, 50) if "tweets" in data.name else (20_000, 11, 26)
    counts = {"train": size, "validation": size // 3, "test": size // 3}
    for name, part in data.parts().items():
        count = counts[name]
        assert part.x.shape == (count, width)
        assert part.y.shape == (count,)
        assert part.x.dtype == part.y.dtype == torch.int64
        assert part.x.min() >= 0
        assert part.x.max() < len(data.table)
        assert part.y.min() >= 0
        assert part.y.max() < data.classes
    assert data.table.dtype == torch.float32
    assert data.table.shape[1] == features
    assert data.input_shape() == (width * features,)
    assert data.classes == len(data.train.y.unique())


def test_windows_hold_the_neighbours(corpus):
    """Padding is `</s>` beyond a tweet, and the end frame beyond an utterance."""
    data, calls = corpus
    half = data.train.x.shape[1] // 2
    for part, ((_, lengths, _), _) in zip(data.parts().values(), calls["sample"], strict=True):
        for x in sentences(part.x, lengths):
            centres = x[:, half].tolist()
            for i, window in enumerate(x.tolist()):
                for j, token in zip(range(i - half, i + half + 1), window, strict=True):
                    if 0 <= j < len(centres):
                        assert token == centres[j]
                    elif "tweets" in data.name:
                        assert token == len(data.table) - 1
                    else:
                        assert token == centres[0 if j < 0 else -1]


def test_frames_are_seen_once_and_standardised():
    data = generated.speech(3000)
    centres = torch.cat([part.x[:, 5] for part in data.parts().values()])
    assert torch.equal(centres, torch.arange(5000))
    assert data.table[:3000].mean(0).abs().max() < 1e-5
    assert (data.table[:3000].std(0, correction=0) - 1).abs().max() < 1e-5


def test_lengths(corpus):
    data, calls = corpus
    for (_, lengths, _), _ in calls["sample"]:
        if "tweets" in data.name:
            assert lengths.max() <= 25
            assert lengths[:-1].min() >= 5
            assert abs(lengths.mean() - 15) < 1.5
        else:
            assert set(lengths[:-1].tolist()) == {300}


def test_the_bayes_error(corpus):
    """The most probable class errs as often, within 4 standard errors over sentences."""
    data, calls = corpus
    (((_, _, lengths, _), p),) = calls["posterior"]
    excess = (p.argmax(axis=1) != data.test.y.numpy()) - (1 - p.max(axis=1))
    of_sentences = np.array([part.sum() for part in sentences(excess, lengths)])
    assert abs(excess.sum()) < 4 * np.sqrt((of_sentences**2).sum())
    assert data.bayes_error == pytest.approx(np.mean(1 - p.max(axis=1)))
    low, high = (0.08, 0.13) if "tweets" in data.name else (0.2, 0.26)
    assert low < data.bayes_error < high


def test_posteriors_are_frequencies(corpus):
    """A class's posteriors sum to its number of examples, within 5 standard errors."""
    data, calls = corpus
    (((_, _, lengths, _), p),) = calls["posterior"]
    excess = p - np.eye(data.classes)[data.test.y]
    of_sentences = np.stack([part.sum(axis=0) for part in sentences(excess, lengths)])
    errors = np.sqrt((of_sentences**2).sum(axis=0))
    assert np.abs(excess.sum(axis=0) / errors).max() < 5


def test_inputs_tell_their_classes(corpus):
    """The nearest mean input of a class is right more often than not, and no better than Bayes."""
    data, _ = corpus
    x, y = data.inputs(data.train.x), data.train.y
    means = torch.stack([x[y == c].mean(dim=0) for c in range(data.classes)])
    nearest = torch.cdist(data.inputs(data.test.x), means).argmin(dim=1)
    assert data.bayes_error < (nearest != data.test.y).float().mean() < 0.5


@pytest.mark.parametrize("make", [generated.tweets, generated.speech])
def test_the_seed_alone_decides(make):
    np.random.seed(1)
    torch.manual_seed(1)
    one = make(900, seed=3)
    np.random.seed(2)
    torch.manual_seed(2)
    again, other = make(900, seed=3), make(900, seed=4)
    for name, part in one.parts().items():
        assert all(map(torch.equal, part, again.parts()[name]))
    assert torch.equal(one.table, again.table)
    assert one.bayes_error == again.bayes_error != other.bayes_error
    assert not torch.equal(one.test.y, other.test.y)
