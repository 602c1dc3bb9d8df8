"""A plugin of pytest (`-p bench.few`): the first two of the chosen tests of each file."""

from collections import Counter

import pytest

FEW = 2


@pytest.hookimpl(trylast=True)  # after -k and -m have chosen
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    seen: Counter[str] = Counter()
    for item in list(items):
        seen[item.path] += 1
        if seen[item.path] > FEW:
            items.remove(item)
