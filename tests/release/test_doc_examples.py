"""Every public name has an example, and so has the README; pytest runs all, in docs/ as well. The
README links to what is there; `make docs` checks the links of docs/."""

import inspect
import re
from doctest import DocTestFinder, DocTestParser

from gelu_kernels import compile, functional, nn, replace
from gelu_kernels.operators import table
from tests import ROOT
from tests.cases import each

README = ROOT / "README.md"
PUBLIC = [
    member
    for module in (functional, nn, replace, compile)
    for name, member in inspect.getmembers(module)
    if (getattr(member, "__module__", None) or "").startswith(module.__name__) and name[0] != "_"
]


def test_public_names():
    names = {member.__name__ for member in PUBLIC}
    assert names >= {name for op in table.PUBLIC for name in op.functions}
    assert names >= {name for op in table.PUBLIC for name in op.modules}
    assert names >= {"replace_activations", "replace_gelu", "Replacement"}
    assert names >= {"enable_fusion", "disable_fusion"}


@each(member=PUBLIC)
def test_public_names_have_examples(member):
    (tests,) = [t for t in DocTestFinder().find(member) if t.name == member.__name__]
    assert any(example.want for example in tests.examples)


def test_readme_has_examples():
    examples = DocTestParser().get_examples(README.read_text())
    assert any("fused_gelu" in example.source and example.want for example in examples)


def heading_anchors(page: str) -> set[str]:
    """As GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", page, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading).lower().replace(" ", "-") for heading in headings}


def test_readme_links():
    links = re.findall(r"\]\(([^):]*)\)", README.read_text())
    assert len(links) > 10
    for link in links:
        path, _, anchor = link.partition("#")
        assert (ROOT / path).exists(), link
        assert not anchor or anchor in heading_anchors((ROOT / path).read_text()), link


def test_readme_is_short():
    assert len(README.read_text().splitlines()) <= 150


def test_they_are_collected(pytestconfig):
    assert pytestconfig.getoption("doctestmodules")
    assert any(README.match(pattern) for pattern in pytestconfig.getoption("doctestglob"))
    assert {"gelu_kernels", README.name, "docs"} <= set(pytestconfig.getini("testpaths"))
