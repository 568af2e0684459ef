"""What a launch would be, looked at before anything is made or started."""

from pathlib import Path

import pytest

from specpanel.core.preflight.rules import blocking
from specpanel.core.session.preparing import look_ahead
from specpanel.core.settings.overrides import Overrides
from specpanel.core.settings.resolve import resolve

# Preflight also looks at the port and at vLLM's package, which are not what these tests are about.
_ABOUT_MODELS = ("target-unusable", "drafter-unusable")


@pytest.mark.parametrize("name", ["demo-ngram", "demo-draft-model"])
def test_a_demonstration_model_that_is_not_made_yet_keeps_nobody_from_starting(name: str) -> None:
    """The start makes it: on a fresh machine the presets must not look broken."""
    prepared = look_ahead(resolve(name, Overrides()))
    assert not [f for f in blocking(prepared.findings) if f.code in _ABOUT_MODELS]
    assert "demo-model-to-come" in {finding.code for finding in prepared.findings}


def test_a_drafter_of_the_users_own_that_is_missing_is_told_beside_it(tmp_path: Path) -> None:
    missing = str(tmp_path / "nothing")
    chosen = Overrides({"drafter.method": "eagle3", "drafter.model": missing})
    prepared = look_ahead(resolve("demo-ngram", chosen))
    assert "drafter-unusable" in {finding.code for finding in blocking(prepared.findings)}
