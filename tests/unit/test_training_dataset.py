"""Token rows say what is wrong with them before anything is trained on them."""

from pathlib import Path

import pytest

from specpanel.core.training.dataset_checks import DatasetFacts, TokenRow, describe_rows, judge_rows
from specpanel.core.training.token_rows import make_row, read_rows


def rows(count: int, prompt: int, answer: int) -> list[TokenRow]:
    return [make_row(f"r{n}", range(prompt), range(100, 100 + answer), 1000) for n in range(count)]


def facts(found: list[TokenRow], **changes: object) -> DatasetFacts:
    settings = {
        "seq_length": 1000,
        "pack_length": 100,
        "validation_share": 0.1,
        "draft_vocab_size": None,
        **changes,
    }
    return describe_rows(found, **settings)  # type: ignore[arg-type]


def codes(found: DatasetFacts, least: float = 0.02) -> dict[str, str]:
    return {one.code: one.severity for one in judge_rows(found, least_mask_share=least)}


def test_only_the_answer_is_trained_on_and_the_row_is_cut_where_it_is_too_long() -> None:
    row = make_row("a", (1, 2, 3), (4, 5, 6), 5)
    assert row.input_ids == (1, 2, 3, 4, 5)
    assert row.loss_mask == (0, 0, 0, 1, 1)
    assert row.trained == 2


def test_good_rows_have_no_findings() -> None:
    found = facts(rows(20, 10, 20))
    assert codes(found) == {}
    assert found.mask_share == pytest.approx(2 / 3)
    assert (found.rows, found.validation_rows, found.validation_packs) == (20, 2, 1)
    assert found.packs == 6  # three rows of 30 tokens a pack of 100


def test_masks_of_zeros_stop_before_training() -> None:
    assert codes(facts(rows(20, 30, 0))) == {"nothing-to-learn": "error"}
    assert codes(facts([])) == {"nothing-to-learn": "error"}


def test_a_small_share_of_trained_tokens_is_a_warning() -> None:
    assert codes(facts(rows(20, 99, 1)))["few-trained-tokens"] == "warning"


def test_a_set_without_a_row_to_validate_with_is_refused() -> None:
    few = facts(rows(3, 2, 2), validation_share=0.01)
    assert few.validation_rows == 1  # int() of the trainer rounds for training down
    assert codes(facts(rows(1, 2, 2), validation_share=0.5))["no-training-pack"] == "error"


def test_a_draft_vocabulary_that_misses_tokens_is_told_with_its_coverage() -> None:
    found = facts(rows(20, 5, 20), draft_vocab_size=10)
    assert found.coverage == pytest.approx(0.5)
    assert codes(found)["draft-vocabulary-small"] == "warning"
    assert facts(rows(20, 5, 20), draft_vocab_size=20).coverage == 1.0


def test_many_rows_that_were_cut_off_are_a_warning() -> None:
    found = facts(rows(20, 10, 20), seq_length=30)
    assert found.truncated == 20
    assert "rows-cut-off" in codes(found)


def test_the_histogram_counts_every_row_once() -> None:
    found = facts(rows(5, 10, 10) + rows(7, 100, 100))
    assert found.lengths == ((32, 5), (64, 0), (128, 0), (200, 7))


def test_a_file_of_rows_that_was_cut_by_a_kill_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(
        '{"id": "a", "input_ids": [1, 2], "loss_mask": [0, 1]}\n'
        '{"id": "a", "input_ids": [1, 2], "loss_mask": [0, 1]}\n'
        '{"id": "b", "input_ids": [1, 2], "loss_mask": [0]}\n'
        '{"id": "c", "input_ids": [1, 2], "loss_m',
        encoding="utf-8",
    )
    assert [row.id for row in read_rows(path)] == ["a"]
    assert list(read_rows(tmp_path / "none")) == []
