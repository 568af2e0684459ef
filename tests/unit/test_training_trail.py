"""A run's events are read once, as they come, whatever happens to the files."""

import json
import os
from pathlib import Path

from pace import cheapest_s

from specpanel.core.training.trail import SLICE_BYTES, Trail, last_log_line, stage_began_unix


def line(number: int, **more: object) -> str:
    return json.dumps({"kind": "step", "step": number, **more}) + "\n"


def rest(trail: Trail) -> list[object]:
    found: list[object] = []
    more = True
    while more:
        read = trail.read()
        found += [None if one is None else one.get("step") for one in read.lines]
        more = read.more
    return found


def test_each_line_comes_once_and_a_half_one_when_it_is_whole(tmp_path: Path) -> None:
    trail, path = Trail(tmp_path), tmp_path / "events.ndjson"
    assert not trail.has_more()
    assert rest(trail) == []
    path.write_text(line(1) + line(2)[:9], encoding="utf-8")
    assert trail.has_more()
    assert rest(trail) == [1]
    assert not trail.has_more()
    with path.open("a", encoding="utf-8") as file:
        file.write(line(2)[9:] + line(3))
    assert rest(trail) == [2, 3]


def test_a_run_that_was_gone_on_with_goes_on_in_the_next_file(tmp_path: Path) -> None:
    (tmp_path / "events.ndjson").write_text(line(1) + '{"cut', encoding="utf-8")
    trail = Trail(tmp_path)
    assert rest(trail) == [1]
    (tmp_path / "events-2.ndjson").write_text(line(2), encoding="utf-8")
    assert trail.has_more()
    assert rest(trail) == [2]
    assert not trail.has_more()


def test_a_file_that_was_replaced_is_read_again_from_its_start(tmp_path: Path) -> None:
    path = tmp_path / "events.ndjson"
    path.write_text(line(1) + line(2), encoding="utf-8")
    trail = Trail(tmp_path)
    assert rest(trail) == [1, 2]
    path.unlink()
    assert trail.has_more()
    path.write_text(line(7), encoding="utf-8")
    read = trail.read()
    assert read.again
    assert rest(trail) == ([] if read.lines else [7])


def test_what_is_no_event_is_told_as_such_and_hides_no_other(tmp_path: Path) -> None:
    deep = "[" * 100_000
    text = line(1) + "no json\n[1]\n\n" + deep + "\n" + line(2)
    (tmp_path / "events.ndjson").write_text(text, encoding="utf-8")
    assert rest(Trail(tmp_path)) == [1, None, None, None, 2]


def test_a_huge_file_is_read_in_slices_and_costs_nothing_once_it_is_read(tmp_path: Path) -> None:
    many = 3 * SLICE_BYTES // len(line(1, pad="x" * 900))
    with (tmp_path / "events.ndjson").open("w", encoding="utf-8") as file:
        file.writelines(line(number, pad="x" * 900) for number in range(many))
    trail = Trail(tmp_path)
    first = trail.read()
    assert first.more
    assert 0 < first.share < 0.5
    assert len(first.lines) + len(rest(trail)) == many
    assert cheapest_s(trail.has_more, 0.001) < 0.001


def test_the_last_line_of_a_log_is_the_last_that_says_something(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    log.write_bytes(
        b"first\n[16:21] INFO   step\x1b[31m 9" + b" " * 500 + b"train.py:7\n   \n-----\n\n"
    )
    shown = last_log_line(log)
    assert shown.startswith("[16:21] INFO step")
    assert shown.endswith("9 train.py:7")
    assert "\x1b" not in shown
    log.write_text("╭──── Error ────╮\n│ no such file  │\n╰───────────────╯\n####\n...\n", "utf-8")
    assert "no such file" in last_log_line(log)
    assert last_log_line(tmp_path / "none") == ""


def test_a_stage_began_when_the_one_before_ended(tmp_path: Path) -> None:
    assert stage_began_unix(tmp_path) is None
    (tmp_path / "recipe.json").write_text("{}")
    os.utime(tmp_path / "recipe.json", (1000, 1000))
    assert stage_began_unix(tmp_path) == 1000
    (tmp_path / "stages").mkdir()
    (tmp_path / "stages" / "data.json").write_text("{}")
    os.utime(tmp_path / "stages" / "data.json", (1600, 1600))
    assert stage_began_unix(tmp_path) == 1600
