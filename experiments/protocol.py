"""Chooses the settings to train and the variants to report."""

from collections.abc import Iterable, Sequence

from experiments.results import Variant
from experiments.runs import Plan, train_all
from experiments.training import Settings


def run(
    plan: Plan, activations: Sequence[str], seeds: int, dtype: str, processes: int
) -> list[Variant]:
    """Trains with every learning rate, and returns the variants that `recipe.choose` selects."""
    recipe = plan.recipe

    def train(wanted: Iterable[tuple[str, float, float]], on_validation: bool) -> list[Variant]:
        groups = {
            setting: [
                Settings(*setting, seed, recipe.epochs, dtype, on_validation)
                for seed in range(seeds)
            ]
            for setting in wanted
        }
        found = train_all(plan, sum(groups.values(), []), processes, plan.experiment)
        return [Variant(*setting, [found[s] for s in group]) for setting, group in groups.items()]

    pairs = recipe.variants(activations)
    every = [(*pair, rate) for pair in pairs for rate in recipe.learning_rates]
    tried = train(every, on_validation=recipe.choose == "none")
    if recipe.choose == "none":
        return tried
    chosen = [
        min((v for v in tried if (v.activation, v.keep) == pair), key=lambda v: v.criterion)
        for pair in pairs
    ]
    if recipe.choose == "validation":
        return chosen
    return train(((v.activation, v.keep, v.learning_rate) for v in chosen), on_validation=True)
