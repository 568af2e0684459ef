"""Print the rows of a dataset that ``datasets`` wrote to disk, one JSON object a line.

For an interpreter that holds pyarrow: its files are Arrow streams, named in ``state.json``. Tensor columns
come as lists. The last line is ``{"rows": n}``.
"""

import json
import sys
from pathlib import Path

import pyarrow


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        sys.stderr.write("usage: prepared_rows.py DATASET_FOLDER\n")
        return 2
    folder = Path(arguments[0])
    try:
        state = json.loads((folder / "state.json").read_text(encoding="utf-8"))
        names = [entry["filename"] for entry in state["_data_files"]]
        if state.get("_indices_files"):
            sys.stderr.write("the dataset is a selection of another; save it whole\n")
            return 1
        count = 0
        for name in names:
            with pyarrow.memory_map(str(folder / name)) as source:
                for batch in pyarrow.ipc.open_stream(source):
                    for row in batch.to_pylist():
                        sys.stdout.write(json.dumps(row, default=str) + "\n")
                        count += 1
    except (OSError, ValueError, KeyError, pyarrow.ArrowInvalid) as error:
        sys.stderr.write(f"{folder} is not a dataset that can be read: {error}\n")
        return 1
    sys.stdout.write(json.dumps({"rows": count}) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
