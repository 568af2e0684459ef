"""What the switcher lists as changed: settings whose meaning differs, not the ways to leave one out."""

from typing import Any

from specpanel.core.lab.arms import what_differs
from specpanel.core.session.switching import Change, differences
from specpanel.core.settings.profile import Profile


def profile(**drafter: Any) -> Profile:
    return Profile.model_validate({"target": {"model": "/m"}, "drafter": drafter})


def test_an_empty_list_or_table_is_an_absent_setting() -> None:
    before = profile(method="ngram", k=4)
    assert any(value == [] for value in before.model_dump(mode="json")["drafter"].values())
    changes = differences(before, profile(method="none"))
    assert Change("drafter.method", "ngram", "none") in changes
    assert [one for one in changes if {one.before, one.after} <= {"", "[]", "{}", "–"}] == []
    assert what_differs(before, profile(method="none")) == changes


def test_a_table_that_is_filled_is_a_change_from_nothing() -> None:
    before = profile(method="ngram", k=4)
    after = profile(method="ngram", k=4, k_by_batch_size=[(1, 8, 4), (9, 64, 2)])
    [change] = differences(before, after)
    assert (change.setting, change.before) == ("drafter.k_by_batch_size", "–")
    assert change.after


def test_a_switch_that_the_other_drafter_lacks_is_a_change_only_where_it_is_on() -> None:
    plain = profile(method="none")
    drafting = {"method": "draft_model", "k": 3, "model": "/d"}
    names = {change.setting for change in differences(plain, profile(**drafting))}
    assert names == {"drafter.method", "drafter.model", "drafter.k"}
    on = differences(plain, profile(**drafting, use_heterogeneous_vocab=True))
    assert Change("drafter.use_heterogeneous_vocab", "–", "yes") in on
    off = differences(profile(**drafting, use_heterogeneous_vocab=True), profile(**drafting))
    assert off == (Change("drafter.use_heterogeneous_vocab", "yes", "no"),)
