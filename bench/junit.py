"""Results of pytest, as its --junit-xml writes them.

As a plugin of pytest (`-p bench.junit`) it runs the first of the chosen tests of each file.
"""

from ast import literal_eval
from pathlib import Path
from xml.etree import ElementTree

import pytest

from bench.gpu_report import COUNTED
from bench.stages import TAIL


def read(path: Path) -> dict[str, object]:
    """Counts, failures, the reasons of skipping, the largest errors, and what took longest."""
    counts = dict.fromkeys(COUNTED, 0)
    failures, skipped, properties, seconds = [], {}, {}, {}
    for test in ElementTree.parse(path).iter("testcase"):
        name = f"{test.get('classname')}::{test.get('name')}"
        seconds[name] = float(test.get("time", 0))
        outcome = next((child for child in test if child.tag in counts), None)
        counts["passed" if outcome is None else outcome.tag] += 1
        if outcome is not None and outcome.tag == "skipped":
            reason = outcome.get("message", "")
            if reason == "collection skipped":  # a module: path, line and reason
                reason = literal_eval(outcome.text)[-1].removeprefix("Skipped: ")
            skipped[reason] = skipped.get(reason, 0) + 1
        elif outcome is not None:
            failures.append({"test": name, "message": (outcome.text or "")[-TAIL:]})
        for recorded in test.iter("property"):
            properties[name] = recorded.get("value")
    slowest = sorted(seconds, key=seconds.get, reverse=True)[:10]
    return {
        **counts,
        "failures": failures,
        "skipped because": skipped,
        "slowest": {name: seconds[name] for name in slowest},
        "largest errors": properties,
    }


@pytest.hookimpl(trylast=True)  # after -k and -m have chosen
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    seen: set[Path] = set()
    for item in list(items):
        if item.path in seen:
            items.remove(item)
        seen.add(item.path)
