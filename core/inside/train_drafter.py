"""Run Speculators' trainer with what a panel needs beside it: a metrics file, kept checkpoints, prefetch.

All arguments are the trainer's own. What is ours comes in the environment:

``SPECPANEL_METRICS``   file that gets one JSON object a step, validation, save and change of state
``SPECPANEL_KEEP``      folder that gets a copy of each saved checkpoint, whole or not at all
``SPECPANEL_PREFETCH``  packs that are fetched ahead in threads (0: none); without worker processes only
``SPECPANEL_IN_FLIGHT`` requests for hidden states at once
``SPECPANEL_PACE``      file that holds the seconds to wait after each step, read anew every time

Where there is no accelerator the trainer (0.9.0) does not run as it is; ``_without_accelerator`` says what
is changed then. With one, none of that is touched. When the process that started this one is gone, it
stops as on Ctrl-C: saves and ends.
"""

import json
import logging
import math
import os
import queue
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from speculators.train import checkpointer, cli, data, dataloader, trainer
from speculators.train.config import TrainConfig
from torch.utils.data import DataLoader

KEPT_FILES = ("config.json", "model.safetensors", "generation_config.json")


class Metrics(logging.Handler):
    """Writes what the trainer logs, and what we tell, as lines of JSON; each is flushed at once."""

    def __init__(self, path: Path, walk: Any, pace: Callable[[], None]) -> None:
        super().__init__()
        self._file = path.open("a", encoding="utf-8", buffering=1)
        self._lock = threading.Lock()
        self.spoilt = False  # a loss was no number: nothing is worth saving any more
        self._walk = walk
        self._pace = pace

    def emit(self, record: logging.LogRecord) -> None:
        if not isinstance(record.msg, dict) or getattr(record, "hparams", False):
            return
        kind = "step" if "train" in record.msg else "validation"
        loss = record.msg.get("train", {}).get("loss")
        if isinstance(loss, float) and not math.isfinite(loss):
            self.spoilt = True
        told = {"at_step": getattr(record, "step", None), **record.msg}
        if kind == "validation":
            told["walk"] = self._walk.told()
        self.tell(kind, told)
        if kind == "step":
            self._pace()

    def tell(self, kind: str, content: dict[str, Any]) -> None:
        text = json.dumps({"kind": kind, "unix": time.time(), **content}, default=str)
        with self._lock:
            self._file.write(text + "\n")


class Ahead(DataLoader):  # type: ignore[misc]
    """A loader that makes its next packs in a thread while a step is computed."""

    depth = 0

    def __iter__(self) -> Iterator[Any]:
        if self.num_workers or not self.depth:
            yield from super().__iter__()
            return
        packs: queue.Queue[tuple[Any, BaseException | None]] = queue.Queue(self.depth)
        gone, end = threading.Event(), object()

        def put(item: Any, error: BaseException | None = None) -> None:
            while not gone.is_set():
                try:
                    packs.put((item, error), timeout=0.2)
                except queue.Full:
                    continue
                return

        def fill(source: Iterator[Any]) -> None:
            try:
                for pack in source:
                    put(pack)
                    if gone.is_set():
                        return
                put(end)
            except BaseException as error:  # noqa: BLE001 - raised again where the packs are taken
                put(end, error)

        thread = threading.Thread(target=fill, args=(super().__iter__(),), daemon=True)
        thread.start()
        try:
            while True:
                pack, error = packs.get()
                if error is not None:
                    raise error
                if pack is end:
                    return
                yield pack
        finally:
            gone.set()


def fetch_together(in_flight: int) -> None:
    """Have the samples of a pack asked for at once instead of one after the other."""
    pool = ThreadPoolExecutor(in_flight, thread_name_prefix="states")
    connecting = threading.Lock()
    set_up = data.ArrowDataset._setup_client

    def once(dataset: Any) -> None:
        with connecting:
            if not dataset.client:
                set_up(dataset)

    def together(dataset: Any, indices: list[int]) -> list[Any]:
        return list(pool.map(dataset.__getitem__, indices))

    data.ArrowDataset._setup_client = once
    data.ArrowDataset.__getitems__ = together


def without_accelerator() -> None:
    """What Speculators 0.9.0 takes for granted and a CPU does not have."""
    cpu = torch.device("cpu")
    trainer.get_local_rank = lambda: cpu  # tensors are moved to it
    torch.accelerator.synchronize = lambda *_, **__: None
    checkpointer.get_current_device = lambda: "cpu"
    begin = trainer.Trainer.__init__

    def begin_on_cpu(self: Any, model: Any, *args: Any, **kwargs: Any) -> None:
        # A checkpoint is kept in bfloat16 and comes back so; a new model is float32, as the states are.
        begin(self, model.float(), *args, **kwargs)
        self.device_type = "cpu"  # it falls back to "cuda", and autocast would do nothing

    trainer.Trainer.__init__ = begin_on_cpu


class Keeping:
    """Hooks into the trainer: tells what it does, keeps copies, and ends the epochs with the steps."""

    def __init__(self, metrics: Metrics, keep: Path | None) -> None:
        self._metrics = metrics
        self._keep = keep
        self._epoch = 0
        self._epoch_began_at = 0

    def install(self) -> None:
        run, epoch = trainer.Trainer.run_training, trainer.Trainer.train_epoch
        save = trainer.Trainer.maybe_save_checkpoint
        keeping = self

        def run_training(self: Any) -> Any:
            keeping._loader_known(self)
            return run(self)

        def train_epoch(self: Any, number: int, **kwargs: Any) -> Any:
            keeping._epoch = number
            keeping._epoch_began_at = self.global_step - getattr(self, "_resume_local_step", 0)
            return epoch(self, number, **kwargs)

        def maybe_save_checkpoint(self: Any, number: Any, local_step: int = 0) -> None:
            if keeping._metrics.spoilt:
                return
            began = time.time()
            save(self, number, local_step)
            place = self.checkpointer.path / str(number)
            saved = place / "model.safetensors"
            # It may have decided against saving: then what lies there is older, or nothing does.
            if self.rank == 0 and saved.is_file() and saved.stat().st_mtime >= began - 2.0:
                keeping._saved(self, place, number)

        trainer.Trainer.run_training = run_training
        trainer.Trainer.train_epoch = train_epoch
        trainer.Trainer.maybe_save_checkpoint = maybe_save_checkpoint

    def _loader_known(self, running: Any) -> None:
        per_epoch = len(running.train_loader)
        config = running.config
        # An epoch that max_steps cut short counts as one: steps done say nothing of epochs done.
        done = getattr(running, "_resume_local_step", 0)
        epochs = config.num_epochs
        if config.max_steps is not None:
            # max_steps ends only the epoch it is reached in; each further one would do one more step.
            left = max(0, config.max_steps - running.global_step)
            epochs = min(
                epochs, running.current_epoch + math.ceil((left + done) / per_epoch if left else 0)
            )
            running.config = config._replace(num_epochs=epochs)
        last = running.global_step + (epochs - running.current_epoch) * per_epoch - done
        if config.max_steps is not None:
            last = min(last, config.max_steps)
        packs = len(running.val_loader) if running.val_loader is not None else 0
        if running.rank == 0:
            self._metrics.tell(
                "loader",
                {
                    "steps_per_epoch": per_epoch,
                    "validation_packs": packs,
                    "last_step": last,
                    "from_step": running.global_step,
                    "epochs": epochs,
                },
            )

    def _saved(self, running: Any, place: Path, number: Any) -> None:
        step = running.global_step
        if number == "interrupted":
            # The trainer writes no state here, so that it could not go on from it.
            state = {
                "epoch": self._epoch,
                "local_step": step - self._epoch_began_at,
                "global_step": step,
            }
            (place / "training_state.json").write_text(json.dumps(state), encoding="utf-8")
        kept = self._copy(place, step)
        self._metrics.tell(
            "saved",
            {
                "global_step": step,
                "epoch": self._epoch,
                "interrupted": number == "interrupted",
                "place": str(place),
                "kept": None if kept is None else str(kept),
            },
        )

    def _copy(self, place: Path, step: int) -> Path | None:
        if self._keep is None:
            return None
        kept = self._keep / f"step-{step:06d}"
        partial = self._keep / f".step-{step:06d}.partial"
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        for name in KEPT_FILES:
            if (place / name).is_file():
                shutil.copy2(place / name, partial / name)
        shutil.rmtree(kept, ignore_errors=True)
        partial.rename(kept)
        return kept


def stop_without_parent() -> None:
    """End as on Ctrl-C once the process that started this one is gone."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=watch, daemon=True).start()


def main(arguments: list[str]) -> None:
    stop_without_parent()
    if not torch.accelerator.is_available():
        without_accelerator()
    sys.path.append(str(Path(__file__).parent))  # a safe path (PYTHONSAFEPATH) leaves it out
    from draft_walk import DraftWalk, walk_validation  # type: ignore[import-not-found]
    from step_pace import wait_as_told  # type: ignore[import-not-found]

    walk = DraftWalk()
    walk_validation(walk)
    pace = Path(os.environ.get("SPECPANEL_PACE", "/nowhere"))
    metrics = Metrics(Path(os.environ["SPECPANEL_METRICS"]), walk, lambda: wait_as_told(pace))
    keep = os.environ.get("SPECPANEL_KEEP")
    Keeping(metrics, Path(keep) if keep else None).install()
    fetch_together(max(1, int(os.environ.get("SPECPANEL_IN_FLIGHT", "4"))))
    Ahead.depth = int(os.environ.get("SPECPANEL_PREFETCH", "0"))
    dataloader.DataLoader = Ahead

    configure = cli.setup_metric_logger

    def with_ours(*args: Any, **kwargs: Any) -> None:
        configure(*args, **kwargs)  # takes every earlier handler away
        logging.getLogger("speculators.metrics").addHandler(metrics)

    cli.setup_metric_logger = with_ours
    config = TrainConfig.resolve(arguments)
    metrics.tell("started", {"pid": os.getpid(), "torch": torch.__version__})
    cli.main(config)
    metrics.tell("ended", {})


if __name__ == "__main__":
    main(sys.argv[1:])
