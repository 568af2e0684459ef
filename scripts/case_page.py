"""Write docs/cases.md: each public report with what it asks for, the tests that hold it, and their result.

scripts/case_page.py [--junit FILE …]   # of pytest --junit-xml; without one no result is claimed

Results of earlier reports are kept in the page where the new ones say nothing of a test.
"""

import argparse
import ast
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "cases.md"
TESTS = HERE.parent / "tests"
LIST = TESTS / "data" / "cases.txt"
AREAS = {
    "A": "NVIDIA telemetry",
    "B": "AMD telemetry",
    "C": "vLLM's metrics",
    "D": "Launching vLLM",
    "E": "Training drafters",
    "F": "Terminal and children",
    "S": "Samples",
}
_ID = re.compile(r"^test_((?:[a-f]\d\d|s\d\d[a-z]?)(?:_(?:[a-f]\d\d|s\d\d[a-z]?))*)_")
_HEAD = """# Public reports, and the tests that hold them

People who serve models have reported these against tools like this one. Each id is part of the name of at
least one test, which feeds the input that was reported and asks for the behaviour named here. This page is
written by `scripts/case_page.py` from the tests and from a report of pytest
(`pytest --junit-xml=report.xml`); `tests/unit/test_every_case.py` holds that no id is without a test.
"""


@dataclass(frozen=True, slots=True)
class Test:
    """One test function, by the file that holds it."""

    file: Path
    name: str

    @property
    def ids(self) -> tuple[str, ...]:
        found = _ID.match(self.name)
        if found is None:
            return ()
        return tuple(re.sub(r"[A-Z]$", "", part.upper()) for part in found[1].split("_"))


def cases() -> dict[str, str]:
    """What each id asks for, in one line."""
    lines = LIST.read_text(encoding="utf-8").splitlines()
    pairs = (line.partition(" ") for line in lines if line and not line.startswith("#"))
    return {name: text.strip() for name, _, text in pairs}


def tests() -> Iterator[Test]:
    """Every test function of the suite, told from its source."""
    for path in sorted(TESTS.rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            if is_function and node.name.startswith("test_"):
                yield Test(path.relative_to(TESTS), node.name)


def by_id() -> dict[str, list[Test]]:
    """The tests of each id."""
    found: dict[str, list[Test]] = {}
    for test in tests():
        for one in test.ids:
            found.setdefault(one, []).append(test)
    return found


def results(reports: list[Path]) -> dict[str, str]:
    """``passed``, ``failed`` or ``skipped`` by test; the worst of a test's parameters counts."""
    worst = {"passed": 0, "skipped": 1, "failed": 2}
    found: dict[str, str] = {}
    for report in reports:
        for case in ET.parse(report).iter("testcase"):
            name = case.get("name", "").partition("[")[0]
            kinds = {child.tag for child in case}
            word = "failed" if kinds & {"failure", "error"} else "passed"
            word = "skipped" if word == "passed" and "skipped" in kinds else word
            if worst[word] >= worst[found.get(name, "passed")]:
                found[name] = word
    return found


def earlier() -> dict[str, str]:
    """The results that the page holds."""
    if not PAGE.exists():
        return {}
    text = PAGE.read_text(encoding="utf-8")
    return dict(re.findall(r"`(test_\w+)` (passed|failed|skipped)", text))


def page(told: dict[str, str]) -> str:
    """The page; ``told`` are results by test."""
    lines = [_HEAD]
    held = by_id()
    for area, title in AREAS.items():
        lines += [f"\n## {area}. {title}\n", "| id | asked for | tests |", "|---|---|---|"]
        for name, text in cases().items():
            if name.startswith(area):
                shown = [
                    f"`{test.name}` {told.get(test.name, 'not run')} ({test.file})"
                    for test in held.get(name, [])
                ]
                lines.append(f"| {name} | {text} | {'<br>'.join(shown) or 'none'} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--junit", nargs="*", type=Path, default=[])
    reports = parser.parse_args().junit
    PAGE.write_text(page({**earlier(), **results(reports)}), encoding="utf-8")


if __name__ == "__main__":
    main()
