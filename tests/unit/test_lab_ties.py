"""A parting of two answers is a tie only where the target itself was undecided."""

import pytest

from specpanel.core.speculation.ties import judged, tolerance_of

LISTED = {7: -0.700, 8: -0.702, 9: -3.0}


@pytest.mark.parametrize(
    ("one", "other", "kind", "gap", "at_least"),
    [
        (7, 8, "tie", 0.002, False),
        (8, 7, "tie", 0.002, False),
        (9, 7, "difference", 2.3, False),
        (1234, 7, "difference", 2.3, True),
        (None, 7, "unknown", None, False),
    ],
)
def test_the_gap_of_log_probabilities_tells_a_tie_from_a_difference(
    one: int | None, other: int, kind: str, gap: float | None, at_least: bool
) -> None:
    found = judged("p", 3, one, other, LISTED, tolerance_of("float32"))
    assert (found.kind, found.at_least) == (kind, at_least)
    assert found.gap_nats == (None if gap is None else pytest.approx(gap))


def test_a_token_that_is_not_listed_is_never_a_tie_however_flat_the_list() -> None:
    found = judged("p", 0, 99, 7, {7: -5.0, 8: -5.0}, 0.25)
    assert found.kind == "difference"


def test_without_likelihoods_nothing_is_claimed() -> None:
    assert judged("p", 0, 1, 2, None, 0.25).kind == "unknown"


def test_tolerance_follows_the_type_of_the_weights() -> None:
    assert tolerance_of("float32") < tolerance_of("float16") < tolerance_of("bfloat16")
    assert tolerance_of(None) == tolerance_of("bfloat16")
