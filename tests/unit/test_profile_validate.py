"""Validating a profile tells every mistake in its file at once, each at its line."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from specpanel.app.cli.root import app
from specpanel.core.errors import ConfigurationError
from specpanel.core.settings.files import read_profile

BAD = """schema_version = 1
[target]
model = "/models/x"
dtype = "int3"
[engine]
port = 99999
prot = 1
[drafter]
method = "ngram"
k = 0
"""


@pytest.fixture
def bad(tmp_path: Path) -> Path:
    path = tmp_path / "bad.toml"
    path.write_text(BAD)
    return path


def test_every_mistake_of_a_file_is_told_with_its_line(bad: Path) -> None:
    found = CliRunner().invoke(app, ["profile", "validate", str(bad)])
    assert found.exit_code == 2
    told = [line for line in found.stderr.splitlines() if line.startswith("specpanel: ")]
    places = {line.split(": ")[1] + " " + line.split(": ")[2] for line in told}
    assert places == {
        f"{bad}, line 4 target.dtype",
        f"{bad}, line 6 engine.port",
        f"{bad}, line 7 engine.prot",
        f"{bad}, line 10 drafter.k",
    }


def test_elsewhere_the_first_mistake_stands_for_all(bad: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read_profile(bad)
    assert caught.value.message.endswith("(and 3 more)")
    assert len(caught.value.every) == 4
    assert all("more)" not in each.message for each in caught.value.every)


def test_mistakes_of_several_files_are_all_told(bad: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.toml"
    other.write_text("schema_version = 1\n")
    found = CliRunner().invoke(app, ["profile", "validate", str(bad), str(other)])
    assert found.exit_code == 2
    assert str(other) in found.stderr
    assert found.stderr.count("specpanel: ") == 5
