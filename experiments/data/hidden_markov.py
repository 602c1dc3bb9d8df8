"""Hidden Markov models: sentences of hidden states, and the posterior of a state given a window.

A transition matrix has a row of positive probabilities for each current state. A sentence is a
piece of the stationary chain whose length does not depend on its states. The tokens of
many sentences lie in one array, one sentence after another; `lengths` cuts it.
"""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Bools = NDArray[np.bool_]


def stationary(transition: Floats) -> Floats:
    """The distribution p with p transition = p."""
    states = len(transition)
    equations = transition.T - np.eye(states)
    equations[-1] = 1  # one of them follows from the others; the sum of p is 1
    return np.linalg.solve(equations, np.eye(states)[-1])


def draw(rows: Floats, which: Integers, generator: np.random.Generator) -> Integers:
    """An outcome for each element of `which`, the index of the row with its probabilities."""
    count, outcomes = rows.shape
    # The edges of row i lie in [i, i + 1], so that one sorted array has the edges of all rows.
    edges = np.cumsum(rows, axis=1)[:, :-1] + np.arange(count)[:, None]
    below = np.searchsorted(edges.ravel(), which + generator.random(which.shape), side="right")
    return below - which * (outcomes - 1)


def sample(transition: Floats, lengths: Integers, generator: np.random.Generator) -> Integers:
    """The states of sentences. Each sentence starts in the stationary distribution."""
    states = np.empty((len(lengths), lengths.max()), np.int64)
    states[:, 0] = draw(stationary(transition)[None], np.zeros_like(lengths), generator)
    for t in range(1, states.shape[1]):
        states[:, t] = draw(transition, states[:, t - 1], generator)
    return states[np.arange(states.shape[1]) < lengths[:, None]]


def windows(lengths: Integers, width: int) -> tuple[Integers, Bools]:
    """For each token, (tokens, width): the indices around it, and which lie in its sentence.

    A place beyond an end of the sentence has the index of the token at that end.
    """
    ends = np.cumsum(lengths)
    first = np.repeat(ends - lengths, lengths)[:, None]
    last = np.repeat(ends - 1, lengths)[:, None]
    places = np.arange(ends[-1])[:, None] + np.arange(width) - width // 2
    return places.clip(first, last), (first <= places) & (places <= last)


def normalised(weights: Floats) -> Floats:
    return weights / weights.sum(axis=1, keepdims=True)


def posterior(transition: Floats, log_likelihood: Floats, lengths: Integers, width: int) -> Floats:
    """P(state of a token | what its window shows), (tokens, states), by forward-backward.

    `log_likelihood`, (tokens, states), is of a token's observation given its state. The
    observations of a window count once each. A place beyond the sentence has the likelihood 1 in
    every state, so it carries no information.
    """
    places, inside = windows(lengths, width)
    likelihood = np.exp(log_likelihood - log_likelihood.max(axis=1, keepdims=True))

    def at(t: int) -> Floats:
        return np.where(inside[:, t, None], likelihood[places[:, t]], 1)

    middle = width // 2
    before, after = stationary(transition)[None], np.ones(len(transition))
    for t in range(middle):
        before = normalised(before * at(t)) @ transition
    for t in reversed(range(middle + 1, width)):
        after = normalised(after * at(t)) @ transition.T
    return normalised(before * at(middle) * after)


def bayes_error(posterior: Floats) -> float:
    """The mean of 1 - max posterior over windows.

    It estimates the Bayes error, a lower bound for any classifier of these windows. The posteriors
    are exact, so the only error is that of averaging over these windows.
    """
    return (1 - posterior.max(axis=1)).mean().item()
