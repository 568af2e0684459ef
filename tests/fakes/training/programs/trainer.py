"""A trainer that keeps to the real one's files, signals and metrics, and learns nothing.

Behaves as the JSON object in FAKE_TRAINER says: ``per_epoch`` steps, ``nan_at``, ``die_at`` (kill -9),
``fail`` (a traceback), ``hang_at``, ``waiting`` (share), ``losses`` of the validations, ``gate`` (goes on
from a step once that file exists), ``step_s``.
"""

import hashlib
import json
import os
import signal
import sys
import threading
import time
import zipfile
from pathlib import Path

SCRIPT = json.loads(os.environ.get("FAKE_TRAINER") or "{}")
WORDS = sys.argv[1:]
GIVEN = {w: WORDS[n + 1] for n, w in enumerate(WORDS[:-1]) if w.startswith("--")}
SAVE = Path(GIVEN["--save-path"])
KEEP = Path(os.environ["SPECPANEL_KEEP"])
PER_EPOCH = SCRIPT.get("per_epoch", 5)
LAST = int(GIVEN["--max-steps"])
STOP = threading.Event()


def tell(kind: str, **content: object) -> None:
    with Path(os.environ["SPECPANEL_METRICS"]).open("a", encoding="utf-8") as file:
        file.write(json.dumps({"kind": kind, "unix": time.time(), **content}) + "\n")


def weights() -> bytes:
    text = json.dumps({"w": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}).encode()
    return len(text).to_bytes(8, "little") + text + bytes(16)


def config() -> dict[str, object]:
    """What of a checkpoint's config.json is looked at before vLLM is started with it."""
    target = json.loads((Path(GIVEN["--verifier-name-or-path"]) / "config.json").read_text())
    kind = GIVEN["--speculator-type"]
    layer = {**target, "num_hidden_layers": 1, "layer_types": ["full_attention"]}
    proposal = {"proposal_type": "greedy", "speculative_tokens": int(GIVEN.get("--ttt-steps", 3))}
    verifier = {"name_or_path": GIVEN["--verifier-name-or-path"], "architectures": []}
    return {
        "architectures": ["Eagle3DraftModel"],
        "speculators_model_type": kind,
        "speculators_version": "0.9.0",
        "eagle_aux_hidden_state_layer_ids": [1, 2, 3],
        "transformer_layer_config": layer,
        "speculators_config": {
            "algorithm": kind,
            "default_proposal_method": "greedy",
            "proposal_methods": [proposal],
            "verifier": verifier,
        },
    }


def save(name: str, epoch: int, local: int, step: int) -> None:
    for folder in (SAVE / name, KEEP / f"step-{step:06d}"):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "model.safetensors").write_bytes(weights())
        (folder / "config.json").write_text(json.dumps(config()), encoding="utf-8")
    with zipfile.ZipFile(SAVE / name / "optimizer_state_dict.pt", "w") as archive:
        archive.writestr("data.pkl", "x")
    state = {"epoch": epoch, "local_step": local, "global_step": step}
    (SAVE / name / "training_state.json").write_text(json.dumps(state), encoding="utf-8")
    tell(
        "saved",
        global_step=step,
        epoch=epoch,
        interrupted=name == "interrupted",
        place=str(SAVE / name),
        kept=str(KEEP / f"step-{step:06d}"),
    )


def resumed() -> int:
    found = [
        json.loads(p.read_text())["global_step"] for p in SAVE.glob("[0-9]*/training_state.json")
    ]
    return max(found, default=0)


def make_vocabulary() -> None:
    """The mapping of the draft vocabulary, from the data; one that is there is taken as it is."""
    size = GIVEN.get("--draft-vocab-size")
    if size is None:
        return
    data = Path(GIVEN["--data-path"])
    mapping = data / f"d2t-{size}.npy"
    if not mapping.exists():
        mapping.write_bytes(hashlib.sha256((data / "data-00000.arrow").read_bytes()).digest())


def accuracies(step: int) -> dict[str, float]:
    first = min(0.6, step / 50)
    return {f"full_acc_{n}": first ** (n + 1) for n in range(3)} | {
        f"cond_acc_{n}": first for n in range(3)
    }


def one_step(step: int) -> None:
    gate = SCRIPT.get("gate")
    while gate and step >= gate["step"] and not Path(gate["file"]).exists() and not STOP.is_set():
        time.sleep(0.02)
    if step == SCRIPT.get("hang_at"):
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        time.sleep(3600)
    if step == SCRIPT.get("die_at") and not Path(SCRIPT["died"]).exists():
        Path(SCRIPT["died"]).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(SCRIPT.get("step_s", 0.005))
    loss = float("nan") if step == SCRIPT.get("nan_at") else 9.0 - step / 20
    tell(
        "step",
        at_step=step,
        train={"loss": loss, **accuracies(step), "error_records": 0.0},
        profile={"step_ms": 5.0, "fetch_ms": 1.0, "fetch_frac": SCRIPT.get("waiting", 0.2)},
        epoch=step // PER_EPOCH,
        lr=0.001,
        global_step=step,
    )


def main() -> int:
    if SCRIPT.get("fail"):
        sys.stderr.write(f"Traceback (most recent call last):\n{SCRIPT['fail']}\n")
        return 1
    signal.signal(signal.SIGINT, lambda *_: STOP.set())
    make_vocabulary()
    begin = resumed()
    tell("loader", steps_per_epoch=PER_EPOCH, validation_packs=1, last_step=LAST, from_step=begin)
    losses = SCRIPT.get("losses", [])
    for step in range(begin, LAST):
        if STOP.is_set():
            save("interrupted", step // PER_EPOCH, step % PER_EPOCH, step)
            return 0
        one_step(step)
        done = step + 1
        if done % PER_EPOCH == 0 or done == LAST:
            epoch = step // PER_EPOCH
            save(str(epoch), epoch, 0 if done % PER_EPOCH == 0 else done % PER_EPOCH, done)
            loss = losses[epoch] if epoch < len(losses) else 9.0 - done / 10
            found = {f"{name}_epoch": value for name, value in accuracies(done).items()}
            tell("validation", at_step=done, epoch=epoch, val={"loss_epoch": loss, **found})
    tell("ended")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
