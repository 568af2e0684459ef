"""What a killed or interrupted trainer leaves is put in order before it goes on."""

import json
import zipfile
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from specpanel.core.training.saves import broken, make_resumable


def write_save(folder: Path, epoch: int, local: int, step: int) -> Path:
    """A save as the trainer writes it, small."""
    folder.mkdir(parents=True)
    save_file({"w": np.ones((8, 8), np.float32)}, folder / "model.safetensors")
    (folder / "config.json").write_text("{}", encoding="utf-8")
    for name in ("optimizer_state_dict.pt", "scheduler_state_dict.pt"):
        with zipfile.ZipFile(folder / name, "w") as archive:
            archive.writestr("data.pkl", "x" * 1000)
    state = {"epoch": epoch, "local_step": local, "global_step": step}
    (folder / "training_state.json").write_text(json.dumps(state), encoding="utf-8")
    return folder


def cut(path: Path) -> None:
    """What a kill in the middle of writing leaves."""
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


def test_an_empty_folder_begins_anew(tmp_path: Path) -> None:
    assert make_resumable(tmp_path / "save").step is None


def test_the_newest_save_is_gone_on_from(tmp_path: Path) -> None:
    write_save(tmp_path / "0", 0, 0, 57)
    write_save(tmp_path / "1", 1, 0, 114)
    assert make_resumable(tmp_path).step == 114


def test_an_interrupted_save_takes_its_epochs_place(tmp_path: Path) -> None:
    write_save(tmp_path / "0", 0, 0, 57)
    write_save(tmp_path / "interrupted", 1, 3, 60)
    assert make_resumable(tmp_path).step == 60
    assert json.loads((tmp_path / "1/training_state.json").read_text())["local_step"] == 3
    assert not (tmp_path / "interrupted").exists()


def test_an_interrupted_save_that_is_older_than_its_epochs_goes(tmp_path: Path) -> None:
    write_save(tmp_path / "1", 1, 0, 114)
    write_save(tmp_path / "interrupted", 1, 3, 60)
    assert make_resumable(tmp_path).step == 114
    assert not (tmp_path / "interrupted").exists()


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer_state_dict.pt"])
def test_a_half_written_save_is_put_aside_and_the_one_before_is_taken(
    tmp_path: Path, name: str
) -> None:
    write_save(tmp_path / "0", 0, 0, 57)
    cut(write_save(tmp_path / "1", 1, 0, 114) / name)
    found = make_resumable(tmp_path)
    assert found.step == 57
    assert len(found.moved) == 1
    assert "not whole" in found.moved[0] or "end early" in found.moved[0]
    assert (tmp_path / "broken-1").is_dir()


def test_links_of_the_trainer_are_no_saves(tmp_path: Path) -> None:
    write_save(tmp_path / "0", 0, 0, 57)
    (tmp_path / "9").symlink_to("0")
    assert make_resumable(tmp_path).step == 57


def test_a_save_without_its_step_is_not_gone_on_from(tmp_path: Path) -> None:
    folder = write_save(tmp_path / "0", 0, 0, 57)
    assert broken(folder) is None
    (folder / "training_state.json").unlink()
    assert broken(folder) == "it does not say which step it is of"
