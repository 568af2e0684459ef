"""The proposer drafts what it was told to, from texts that it knows, and nothing else."""

import json
import os
from array import array
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from specpanel.core.inside.proposers.chosen_acceptance import ChosenAcceptanceProposer, luck

PROMPTS = [[1, 2, 3], [1, 2, 3, 4, 5], [9, 9, 9]]


def text(number: int) -> list[int]:
    return [100 * (number + 1) + place for place in range(60)]


class Row:
    """As much of a numpy array as the proposer asks of one row."""

    def __init__(self, tokens: list[int]) -> None:
        self.tokens = tokens

    def __len__(self) -> int:
        return len(self.tokens)

    def astype(self, kind: str) -> "array[int]":
        assert kind == "int32"
        return array("i", self.tokens)


class Batch:
    def __init__(self, rows: list[list[int]]) -> None:
        self.rows = rows

    def __getitem__(self, place: tuple[int, slice]) -> Row:
        row, part = place
        return Row(self.rows[row][part])


class Desk:
    """A proposer with its control file."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, **control: Any) -> None:
        self.control = folder / "control.json"
        table = folder / "table.jsonl"
        rows = [
            {"prompt": prompt, "completion": text(number)} for number, prompt in enumerate(PROMPTS)
        ]
        table.write_text("".join(json.dumps(row) + "\n" for row in rows))
        self.base = {"table": str(table), "k": 4, "rate": 1.0, "seed": 0}
        self.write(**control)
        monkeypatch.setenv("CHOSEN_ACCEPTANCE", str(self.control))
        model = SimpleNamespace(max_model_len=1024, get_vocab_size=lambda: 1000)
        config = SimpleNamespace(
            speculative_config=SimpleNamespace(num_speculative_tokens=8), model_config=model
        )
        self.proposer = ChosenAcceptanceProposer(config)

    def write(self, **control: Any) -> None:
        partial = self.control.with_suffix(".new")
        partial.write_text(json.dumps({**self.base, **control}))
        os.replace(partial, self.control)

    def drafts(self, *rows: list[int], sampled: list[list[int]] | None = None) -> list[list[int]]:
        given = sampled if sampled is not None else [[row[-1]] for row in rows]
        lengths = [len(row) for row in rows]
        return self.proposer.propose(given, lengths, Batch(list(rows)), slot_mappings=None)


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    return Desk(tmp_path, monkeypatch)


def test_at_rate_one_it_drafts_the_true_next_tokens_of_each_row(desk: Desk) -> None:
    rows = [prompt + text(number)[: 5 + number] for number, prompt in enumerate(PROMPTS)]
    drafted = desk.drafts(*rows)
    assert drafted == [text(n)[5 + n : 9 + n] for n in range(3)]
    # Requests move between the rows of a batch.
    assert desk.drafts(*rows[::-1]) == drafted[::-1]


def test_at_rate_zero_the_first_token_is_wrong(desk: Desk) -> None:
    desk.write(rate=0.0)
    [drafted] = desk.drafts(PROMPTS[0] + text(0)[:5])
    assert len(drafted) == 4
    assert drafted[0] == text(0)[5] + 1


def test_k_and_rate_follow_the_file_without_a_new_server(desk: Desk) -> None:
    row = PROMPTS[0] + text(0)[:5]
    for k in (0, 2, 8):
        desk.write(k=k)
        assert [len(drafted) for drafted in desk.drafts(row)] == [k]
    desk.write(k=20)
    assert len(desk.drafts(row)[0]) == 8, "never above what the server was started with"


def test_the_share_of_accepted_tokens_is_the_chosen_one(desk: Desk) -> None:
    desk.write(rate=0.8)
    tried = accepted = 0
    for number, prompt in enumerate(PROMPTS):
        for seed in range(40):
            desk.write(rate=0.8, seed=seed)
            for place in range(5, 50, 5):
                [drafted] = desk.drafts(prompt + text(number)[:place])
                for one, true in zip(drafted, text(number)[place:], strict=False):
                    tried += 1
                    if one != true:
                        break
                    accepted += 1
    assert accepted / tried == pytest.approx(0.8, abs=0.02)


def test_the_same_draft_is_made_however_requests_are_batched(desk: Desk) -> None:
    desk.write(rate=0.5)
    rows = [prompt + text(number)[:7] for number, prompt in enumerate(PROMPTS)]
    together = desk.drafts(*rows)
    assert [desk.drafts(row)[0] for row in rows] == together
    assert luck(1, 2, 3) == luck(1, 2, 3) != luck(1, 3, 2)


def test_unknown_texts_prefills_and_ends_draft_nothing(desk: Desk) -> None:
    known = PROMPTS[0] + text(0)[:5]
    assert desk.drafts([5, 5, 5, 5]) == [[]]
    assert desk.drafts([*known[:-1], 999]) == [[]], "it has left the recorded answer"
    assert desk.drafts(known, sampled=[[]]) == [[]], "in its prefill"
    assert desk.drafts(PROMPTS[0] + text(0)) == [[]], "at the end of the recording"
    assert desk.drafts(PROMPTS[0] + text(0)[:-2]) == [text(0)[-2:]]


def test_without_a_control_file_it_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CHOSEN_ACCEPTANCE", raising=False)
    config = SimpleNamespace(
        speculative_config=SimpleNamespace(num_speculative_tokens=4),
        model_config=SimpleNamespace(max_model_len=10, get_vocab_size=lambda: 10),
    )
    with pytest.raises(ValueError, match="CHOSEN_ACCEPTANCE names no control file"):
        ChosenAcceptanceProposer(config)
