"""One line of vLLM's log, from raw bytes to named parts. Pure.

Formats read from vLLM 0.32.0: ``vllm/envs.py`` and ``vllm/logger.py`` (text and JSON formatter),
``vllm/logging_utils/formatter.py`` (a record of several lines repeats its prefix on each).
"""

import json
import re
from dataclasses import dataclass

LINE_LIMIT = 4096  # characters kept of one line

# Escape sequences as ECMA-48 has them: CSI, then OSC and the other strings, then the short ones.
_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"
    r"|\x1b[\]PX^_].*?(?:\x07|\x1b\\|$)"
    r"|\x1b[ -/]*[0-~]"
    r"|\x1b"
)
_CONTROLS = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f]")
_PROCESS = re.compile(r"^\((?P<process>[A-Za-z][\w.\-]*)(?: pid=(?P<pid>\d+))?\) ?")
_RECORD = re.compile(
    r"^(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL) "
    r"(?P<time>\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d+)?) "
    r"\[?(?P<source>[^\]\s]+:\d+)\] ?(?P<message>.*)$"
)
_UVICORN = re.compile(r"^(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL): {2,5}(?P<message>.*)$")


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line's parts; what the line does not carry is None.

    ``text`` is the whole line without escapes, as it can be shown. ``message`` is what is left after
    process, level, time and source. ``time_text`` is as vLLM writes it: without a year or a zone.
    """

    process: str | None
    pid: int | None
    level: str | None
    time_text: str | None
    source: str | None
    message: str
    text: str
    cut: bool = False  # the line was longer than the limit

    @property
    def writer(self) -> tuple[str | None, int | None, str | None, str | None, str | None]:
        """What the lines of one record have in common."""
        return (self.process, self.pid, self.level, self.time_text, self.source)


def parse_line(raw: bytes, limit: int = LINE_LIMIT) -> LogLine:
    """Read one line of vLLM's output, with or without its line end.

    Args:
        raw: the bytes between two line feeds; what is not UTF-8 becomes the replacement character.
        limit: most characters kept; the rest is left out and ``cut`` says so.
    """
    return parse_text(raw.decode("utf-8", errors="replace"), limit)


def parse_text(line: str, limit: int = LINE_LIMIT) -> LogLine:
    """Like `parse_line`, for a line that is text already."""
    clean = _CONTROLS.sub("", _ESCAPES.sub("", _last_progress(line)))
    return _parse_json(clean, limit) or _parse_plain(clean[:limit], len(clean) > limit)


def _last_progress(line: str) -> str:
    """What a terminal shows in the end of a line that was rewritten with carriage returns."""
    written = [part for part in line.rstrip("\r\n").split("\r") if part.strip()]
    return written[-1] if written else ""


def _parse_plain(text: str, cut: bool) -> LogLine:
    prefix = _PROCESS.match(text)
    process = prefix["process"] if prefix else None
    pid = int(prefix["pid"]) if prefix and prefix["pid"] else None
    rest = text[prefix.end() :] if prefix else text
    if record := _RECORD.match(rest):
        return LogLine(
            process,
            pid,
            record["level"],
            record["time"],
            record["source"],
            record["message"],
            text,
            cut,
        )
    if uvicorn := _UVICORN.match(rest):
        return LogLine(process, pid, uvicorn["level"], None, None, uvicorn["message"], text, cut)
    return LogLine(process, pid, None, None, None, rest, text, cut)


def _parse_json(clean: str, limit: int) -> LogLine | None:
    """A record of vLLM's JSON formatter (``--logging-config.formatter json``), or None.

    Only ``text`` is cut: the message may hold a whole traceback, whose end matters most.
    """
    if not clean.startswith("{"):
        return None
    try:
        record = json.loads(clean)
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict) or not isinstance(record.get("message"), str):
        return None
    pid = record.get("process")
    message = record["message"]
    trace = record.get("exc_info")
    return LogLine(
        process=_text_or_none(record.get("vllm_process_name") or record.get("processName")),
        pid=pid if isinstance(pid, int) else None,
        level=_text_or_none(record.get("levelname")),
        time_text=_text_or_none(record.get("asctime")),
        source=_text_or_none(record.get("name")),
        message=f"{message}\n{trace}" if isinstance(trace, str) else message,
        text=clean[:limit],
        cut=len(clean) > limit,
    )


def _text_or_none(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
