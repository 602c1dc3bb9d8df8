"""Options of the commands."""

from collections.abc import Callable, Iterable

import click


def choice(
    option: str,
    parameter: str,
    values: Iterable[str],
    default: Iterable[str] | None = None,
    help: str | None = None,
) -> Callable:
    """An option that may be given several times; without a default, all if never."""
    values = tuple(values)
    default = values if default is None else tuple(default)
    return click.option(
        option,
        parameter,
        type=click.Choice(values),
        multiple=True,
        default=default,
        show_default=bool(default),
        help=help,
    )
