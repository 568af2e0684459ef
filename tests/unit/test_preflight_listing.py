"""The page of all rules is the rules' own."""

from pathlib import Path

from specpanel.core.preflight.listing import rules_page
from specpanel.core.preflight.rules import RULES

PAGE = Path(__file__).parents[2] / "docs" / "preflight.md"


def test_the_page_lists_every_rule_as_it_is() -> None:
    assert PAGE.read_text() == rules_page(), (
        "python -m specpanel.core.preflight.listing > docs/preflight.md"
    )


def test_ids_are_unique_and_words_whole() -> None:
    assert len({rule.id for rule in RULES}) == len(RULES)
    for rule in RULES:
        assert rule.says.endswith("."), rule.id
        assert rule.fix.endswith("."), rule.id
        assert rule.severity not in rule.also
