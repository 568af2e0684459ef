"""The prediction of a validation: each answer walked draft by draft, as a server does."""

import torch

from specpanel.core.inside.draft_walk import DraftWalk
from specpanel.core.training.progress import walked


def marks(text: str) -> torch.Tensor:
    return torch.tensor([[mark == "x" for mark in text]])


def test_an_easy_stretch_is_passed_in_one_draft_and_a_hard_one_token_by_token() -> None:
    walk = DraftWalk()
    answers = marks("..xxxxx.xx")
    walk.agreed(0, answers, marks("..x.x...x."))
    walk.agreed(1, answers, marks("..x......."))
    # From 2 two are accepted, so 5 is next, then 6; 8 begins another answer, whose end cuts its draft.
    assert walk.told() == {"drafts": 4, "accepted_by_position": [2, 1]}
    assert walk.told() is None, "what was told is forgotten"


def test_packs_are_walked_one_after_the_other_and_a_draft_never_reaches_into_the_next_answer() -> (
    None
):
    walk = DraftWalk()
    for _ in range(2):
        walk.agreed(0, marks("xx.xx"), marks("xx.xx"))
        walk.agreed(1, marks("xx.xx"), marks("xx.x."))
    found = walk.told()
    assert found is not None
    assert found["drafts"] == 4


def test_what_every_token_alone_would_say_is_more_than_what_a_server_shows() -> None:
    walk = DraftWalk()
    answers = marks("x" * 12)
    first, second, third = marks("xxxxxxxx...."), marks("xxxxxxx....."), marks("xxxxxx......")
    for position, agreeing in enumerate((first, second, third)):
        walk.agreed(position, answers, agreeing)
    found = walked(walk.told())
    assert found is not None
    by_token = 1 + sum(agreeing.float().mean().item() for agreeing in (first, second, third))
    assert (
        found.acceptance_length == 12 / 6
    )  # two drafts pass the easy eight, the other four stand alone
    assert by_token > 2.7
    assert [round(one.unconditional, 3) for one in found.positions] == [0.333, 0.333, 0.333]
    assert found.positions[1].conditional == 1.0


def test_without_drafts_nothing_is_predicted() -> None:
    assert walked(None) is None
    assert walked({"drafts": 0, "accepted_by_position": []}) is None
    assert walked("no walk") is None
