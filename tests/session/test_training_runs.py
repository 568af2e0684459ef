"""Which trainings there are, whose process one is, and how it is begun and asked to end."""

import asyncio
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.engine.workbench import wait_for

from specpanel.core.errors import NotRunningError
from specpanel.core.settings.paths import data_folder
from specpanel.core.training.detached import Detached, interrupt_owner, new_root
from specpanel.core.training.recipe_files import read_recipe
from specpanel.core.training.resumption import resumable_recipe
from specpanel.core.training.runs import Owner, folder_stamps, running_trainings, training_runs

SAMPLE = Path(__file__).parents[1] / "data" / "training" / "train-tiny"
# Opens the events of a folder as the recorder does, and ends like a training on SIGINT.
RECORDS = """
import signal, sys, time
file = open(sys.argv[1] + "/events-3.ndjson", "w")
signal.signal(signal.SIGINT, lambda *_: sys.exit(130))
print("up", flush=True)
time.sleep(600)
"""


@pytest.fixture
def root() -> Path:
    root = data_folder() / "training" / "train-tiny" / "20261130-162828"
    shutil.copytree(SAMPLE, root)
    return root


@pytest.fixture
def recorder(root: Path) -> Iterator[subprocess.Popen[bytes]]:
    child = subprocess.Popen([sys.executable, "-c", RECORDS, str(root)], stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    yield child
    child.kill()
    child.wait()


def test_a_run_is_told_by_its_files(root: Path) -> None:
    [run] = training_runs({})
    assert (run.recipe, run.algorithm, run.state) == ("train-tiny", "eagle3", "done")
    assert (run.steps, run.wanted_steps, run.resumable) == (20, 20, False)
    assert run.predicted == pytest.approx(1.083, abs=1e-3)
    (root / "events-2.ndjson").unlink()
    [run] = training_runs({})
    assert (run.state, run.steps, run.resumable) == ("stopped", 15, True)
    with (root / "events.ndjson").open("a", encoding="utf-8") as file:
        file.write('{"kind": "step", "st')
    [run] = training_runs({})
    assert (run.state, run.resumable) == ("cut off", True)
    (root / "recipe.json").write_text("{", encoding="utf-8")
    [run] = training_runs({})
    assert (run.state, run.recipe) == ("unreadable", "train-tiny")


def test_a_failure_is_told_with_its_sentence(root: Path) -> None:
    line = '{"kind": "summary", "failure": "the disk is full", "resumable": true, "steps": 7}\n'
    (root / "events-2.ndjson").write_text(line, encoding="utf-8")
    [run] = training_runs({})
    assert (run.state, run.why, run.steps, run.resumable) == ("failed", "the disk is full", 7, True)


def test_a_new_run_changes_what_is_looked_at(root: Path) -> None:
    before = folder_stamps()
    assert folder_stamps() == before
    shutil.copytree(SAMPLE, root.with_name("another"))
    assert folder_stamps() != before


def test_a_run_that_another_process_records_is_running_and_ends_when_asked(
    root: Path, recorder: "subprocess.Popen[bytes]"
) -> None:
    owner = running_trainings()[root]
    assert owner.pid == recorder.pid
    assert owner.lives
    [run] = [run for run in training_runs() if run.root == root]
    assert (run.state, run.owner, run.resumable) == ("running", owner, False)
    interrupt_owner(owner)
    assert recorder.wait(timeout=30) == 130
    with pytest.raises(NotRunningError):
        interrupt_owner(owner)
    assert root not in running_trainings()


def test_another_process_with_its_pid_is_never_interrupted(
    recorder: "subprocess.Popen[bytes]",
) -> None:
    with pytest.raises(NotRunningError):
        interrupt_owner(Owner(recorder.pid, "another boot/1"))
    assert recorder.poll() is None


def test_going_on_needs_no_word_of_the_first_command(root: Path) -> None:
    recipe = read_recipe(resumable_recipe(root))
    assert recipe.name == "train-tiny"
    assert recipe.target.model == "/srv/training/tiny"
    assert recipe.trainer.steps == 20
    assert recipe.algorithm.type == "eagle3"


def test_a_folder_for_a_new_run_is_never_one_that_is_there() -> None:
    first = new_root("mine")
    first.mkdir(parents=True)
    assert new_root("mine") != first


async def test_what_is_detached_is_in_a_session_of_its_own_and_ends_when_asked(
    root: Path,
) -> None:
    child = Detached("train-tiny", [sys.executable, "-c", RECORDS, str(root)], root=root)
    await asyncio.to_thread(wait_for, lambda: child.out.read_bytes() == b"up\n", "the child is up")
    assert running_trainings()[root] == child.owner
    await child.stop(threading.Event())
    assert child.exit_code == 130
    child.forget_files()
    assert not child.out.exists()
