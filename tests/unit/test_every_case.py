"""No public report is without a test that carries its id."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "case_page.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("case_page", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = found
    spec.loader.exec_module(found)
    return found


def test_every_report_has_a_test_with_its_id(script: ModuleType) -> None:
    asked, held = script.cases(), script.by_id()
    assert sum(name[0] in "ABCDEF" for name in asked) == 112
    assert sorted(asked.keys() - held.keys()) == []
    assert sorted(held.keys() - asked.keys()) == [], "an id that no report has"


def test_the_page_has_a_row_and_a_test_for_every_report(script: ModuleType) -> None:
    rows = {
        line.split("|")[1].strip(): line
        for line in script.PAGE.read_text(encoding="utf-8").splitlines()
        if line.startswith("| ") and "`test_" in line
    }
    assert sorted(script.cases().keys() - rows.keys()) == [], "run scripts/case_page.py"


def test_the_worst_result_of_a_tests_parameters_counts(script: ModuleType, tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    report.write_text(
        "<testsuites><testsuite>"
        '<testcase name="test_a01_x[1]"/><testcase name="test_a01_x[2]"><failure/></testcase>'
        '<testcase name="test_a01_x[3]"/><testcase name="test_b01_y"><skipped/></testcase>'
        "</testsuite></testsuites>"
    )
    assert script.results([report]) == {"test_a01_x": "failed", "test_b01_y": "skipped"}
