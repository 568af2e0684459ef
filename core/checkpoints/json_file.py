"""A checkpoint's JSON files, read as data, with a reason that a person understands where one is none."""

import errno
import json
from pathlib import Path
from typing import Any, NoReturn

from specpanel.core.errors import ConfigurationError
from specpanel.core.ordinary import read_ordinary

LIMIT_BYTES = 4 * 1024 * 1024


def read_json(file: Path, limit_bytes: int = LIMIT_BYTES) -> dict[str, Any]:
    """The object in ``file``.

    Raises:
        ConfigurationError: not there, not readable, too large, not JSON, or no object.
    """
    try:
        content = read_ordinary(file, limit_bytes, pipes=False)
        values = json.loads(content.decode("utf-8"), parse_constant=_constant)
    except FileNotFoundError:
        raise ConfigurationError(
            f"the folder {file.parent} holds no {file.name}",
            "Give the folder of a Hugging Face checkpoint.",
        ) from None
    except OSError as error:
        if error.errno == errno.EFBIG:
            _reject(file, f"{error.strerror}, too much for a model's configuration")
        _reject(file, f"cannot be read ({error.strerror})")
    except UnicodeDecodeError:
        _reject(file, "is not text in UTF-8")
    except json.JSONDecodeError as error:
        _reject(file, _json_reason(error))
    except RecursionError:
        _reject(file, "is nested too deeply")
    except ValueError as error:
        _reject(file, str(error))
    if not isinstance(values, dict):
        _reject(file, "is JSON, but not an object")
    return values


def _constant(name: str) -> float:
    # Infinity is in real files (Mamba's time_step_limit); a NaN is in none that works.
    if name == "NaN":
        raise ValueError("holds NaN, which is no number")
    return float(name)


def _json_reason(error: json.JSONDecodeError) -> str:
    start = error.doc.lstrip()[:100].lower()
    if error.doc.startswith("\ufeff"):
        return "starts with a byte order mark, which vLLM cannot read: save it without"
    if start.startswith(("<!doctype", "<html", "<?xml")):
        return "is a web page, not JSON: the download went wrong"
    if start.startswith("version https://git-lfs"):
        return "is a Git LFS pointer, not the file itself: run git lfs pull"
    return f"is not JSON (line {error.lineno}: {error.msg})"


def _reject(file: Path, reason: str) -> NoReturn:
    raise ConfigurationError(f"{file} {reason}", "Take the file from the model's source again.")
