"""Writes an experiment's results: CSV files, figures, and its section of the page."""

from pathlib import Path

from bench.markdown import table
from experiments import plots
from experiments.findings import findings, named, number, percent
from experiments.page import SECTION, write_csv
from experiments.recipe import Recipe
from experiments.results import Variant
from experiments.runs import Plan


def row(recipe: Recipe, variant: Variant) -> dict[str, str]:
    """A row of the section's table."""
    found = {"activation": named(variant), "learning rate": f"{variant.learning_rate:g}"}
    found["training loss"] = number(variant.last("train_loss"))
    if not recipe.classifies:
        return found | {"test loss": number(variant.last("test_loss"))}
    found["test error, %"] = percent(variant.best("test_error"))
    is_papers = variant.keep in recipe.keeps or variant.activation == "soi"
    return found | {"paper, %": recipe.paper.get(variant.activation, "") if is_papers else ""}


def command(plan: Plan, variants: list[Variant]) -> str:
    """The command that repeats these results."""
    recipe, seeds = plan.recipe, len(variants[0].runs)
    activations = list(dict.fromkeys(variant.activation for variant in variants))
    options = {
        "--data DIR": plan.data.stands_in_for is None,
        f"--activation {' '.join(activations)}": {*activations} != {*recipe.activations},
        f"--seeds {seeds}": seeds != recipe.seeds,
        f"--epochs {plan.epochs}": plan.epochs,
        "--quick": plan.quick,
    }
    words = [word for word, is_given in options.items() if is_given]
    return " ".join(["python -m experiments", plan.experiment, *words])


def section(plan: Plan, variants: list[Variant], pictures: list[str]) -> str:
    recipe, data = plan.recipe, plan.data
    if recipe.choose != "validation":
        data = data.with_validation_in_train()
    sizes = ", ".join(f"{len(part.y)} {name}" for name, part in data.parts().items() if len(part.y))
    steps = recipe.epochs * (len(data.train.y) // min(recipe.batch, len(data.train.y)))
    about = [
        f"Data: {data.name} ({sizes}). A run: {recipe.epochs} epochs, {steps} steps. "
        f"Seeds: {len(variants[0].runs)}."
    ]
    if data.stands_in_for:
        about += [f"**They stand in for {data.stands_in_for}.**", recipe.stand_in_says]
    if data.bayes_error is not None:
        about.append(f"The Bayes error is {data.bayes_error:.2%}.")
    words = f"The paper's section {recipe.section}.", recipe.claim, f"`{command(plan, variants)}`"
    rows = [row(recipe, variant) for variant in variants]
    paragraphs = [
        f"## {recipe.title}",
        " ".join(filter(None, words)),
        " ".join(about),
        table(rows[0], (row.values() for row in rows)).rstrip(),
        "\n".join(findings(recipe, variants)),
        *(f"![{name}]({plan.experiment}/{name}.png)" for name in pictures),
    ]
    return "\n\n".join(paragraphs) + "\n"


def of_runs(variants: list[Variant], name: str) -> list[dict[str, object]]:
    """The rows of all runs under this name, with their variant and seed."""
    return [
        {**variant.key(), "seed": seed, **found}
        for variant in variants
        for seed, run in enumerate(variant.runs)
        for found in run[name]
    ]


def write(plan: Plan, variants: list[Variant], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    figures = {"training": plots.training(plan.recipe, variants)}
    write_csv(folder / "training.csv", of_runs(variants, "rows"))
    write_csv(folder / "results.csv", [variant.summary() for variant in variants])
    if plan.recipe.noise:
        figures["robustness"] = plots.robustness(plan.recipe, variants)
        write_csv(folder / "robustness.csv", of_runs(variants, "robustness"))
    for name, figure in figures.items():
        figure.savefig(folder / f"{name}.png", dpi=100)
    (folder / SECTION).write_text(section(plan, variants, list(figures)))
