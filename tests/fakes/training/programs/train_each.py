"""Run our runner over the real trainer once for each list of flags, on random hidden states, from one import.

Reads {"runner", "folder", "hidden", "layers", "vocabulary", "runs": {name: [flags]}} as JSON
on standard input, and writes {name: exit status} on standard output.
"""

import importlib.util
import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from safetensors.torch import save_file

ROWS, TOKENS = 6, 40


def load(path: str) -> Any:
    spec = importlib.util.spec_from_file_location("train_drafter", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def write_data(given: dict[str, Any], folder: Path) -> None:
    """Rows as prepare-data leaves them, and their states as an extraction server does."""
    random = torch.Generator().manual_seed(0)
    ids = torch.randint(5, given["vocabulary"], (ROWS, TOKENS), generator=random)
    mask = [[0] * 10 + [1] * (TOKENS - 10)] * ROWS
    columns = {"input_ids": ids.tolist(), "loss_mask": mask, "seq_len": [TOKENS] * ROWS}
    rows = Dataset.from_dict(columns)
    rows.set_format("torch", columns=["input_ids", "loss_mask", "seq_len"])
    rows.save_to_disk(str(folder / "data"))
    (folder / "states").mkdir()
    for number in range(ROWS):
        states = torch.randn(TOKENS, given["layers"] + 1, given["hidden"], generator=random)
        content = {"hidden_states": states, "token_ids": ids[number].clone()}
        save_file(content, folder / "states" / f"hs_{number}.safetensors")


def one(runner: Any, name: str, flags: list[str], folder: Path) -> int:
    """The exit status of a child of ours that trains."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    place = folder / name
    place.mkdir(exist_ok=True)
    output = os.open(place / "log.txt", os.O_CREAT | os.O_WRONLY)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.environ["SPECPANEL_METRICS"] = str(place / "metrics.jsonl")
    os.environ["SPECPANEL_KEEP"] = str(place / "kept")
    status = 1
    try:
        runner.main(flags)
        status = 0
    except BaseException:  # noqa: BLE001 - the end of this process, told in its log
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def main() -> None:
    given = json.load(sys.stdin)
    folder = Path(given["folder"])
    os.environ["SPECPANEL_PREFETCH"] = "1"
    write_data(given, folder)
    runner = load(given["runner"])
    ends = {name: one(runner, name, flags, folder) for name, flags in given["runs"].items()}
    sys.stdout.write(json.dumps(ends) + "\n")


if __name__ == "__main__":
    main()
