"""``speculators prepare-data`` and ``speculators.train --dump-config``, without what they compute.

FAKE_PREPARE: ``lose`` (rows that are left out) or ``fail``. A data set that is there already is left as it
is, and all is said to be well: as the real one does.
"""

import json
import os
import sys
from pathlib import Path


def prepare(words: list[str]) -> int:
    given = dict(zip(words[::2], words[1::2], strict=False))
    output = Path(given["--output"])
    if list(output.glob("*.arrow")):
        return 0
    if os.environ.get("FAKE_PREPARE") == "fail":
        sys.stderr.write("Traceback (most recent call last):\nValueError: the disk is full\n")
        return 1
    rows = Path(given["--data"]).read_text(encoding="utf-8").splitlines()
    lost = 3 if os.environ.get("FAKE_PREPARE") == "lose" else 0
    output.mkdir(parents=True, exist_ok=True)
    (output / "data-00000.arrow").write_text("\n".join(rows[lost:]) + "\n", encoding="utf-8")
    (output / "state.json").write_text(json.dumps({"_data_files": []}), encoding="utf-8")
    return 0


def convert(words: list[str]) -> int:
    """``speculators convert``: a config.json in its format, with the map of the draft vocabulary kept."""
    given = dict(zip(words[1::2], words[2::2], strict=False))
    source, output = Path(words[0]), Path(given["--output-path"])
    old = json.loads((source / "config.json").read_text(encoding="utf-8"))
    if "hidden_size" not in old:
        sys.stderr.write("Traceback (most recent call last):\nKeyError: 'hidden_size'\n")
        return 1
    output.mkdir(parents=True)
    layers = json.loads(given["--algorithm-kwargs"])
    config = {
        "speculators_model_type": given["--algorithm"],
        "speculators_config": {"algorithm": given["--algorithm"], "verifier": {}},
        "transformer_layer_config": {"vocab_size": 400, "hidden_size": old["hidden_size"]},
        "draft_vocab_size": old["draft_vocab_size"],
        **layers,
    }
    (output / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (output / "model.safetensors").write_bytes((source / "model.safetensors").read_bytes())
    return 0


def stitch(words: list[str]) -> int:
    """``speculators stitch-mtp``: the target again, with the drafter's layers."""
    target, output = Path(words[1]), Path(words[words.index("--output-path") + 1])
    output.mkdir(parents=True)
    for file in target.iterdir():
        (output / file.name).write_bytes(file.read_bytes())
    return 0


def train(words: list[str]) -> int:
    if "--bad-flag" in words or os.environ.get("FAKE_TRAINER_REFUSES"):
        sys.stderr.write("usage: ...\nspeculators.train: error: argument --lr: invalid value\n")
        return 2
    return 0


if __name__ == "__main__":
    command, rest = sys.argv[1], sys.argv[2:]
    known = {"prepare-data": prepare, "convert": convert, "stitch-mtp": stitch}
    raise SystemExit(known.get(command, train)(rest))
