"""Why vLLM ended: one sentence and what to change, from its log and its exit status. Pure.

The cause is what the first engine process said as it fell, not the API server's last words, which are
always "Engine core initialization failed". Known texts stand in `known_causes`; of an unknown one the
exception itself is shown.
"""

import re
import signal
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from specpanel.core.engine.known_causes import KNOWN_CAUSES, Cause
from specpanel.core.engine.logline import LogLine, parse_text
from specpanel.core.engine.step_dump import step_evidence
from specpanel.core.engine.tracebacks import Raised, Traceback, find_tracebacks
from specpanel.core.printable import without_secrets
from specpanel.core.settings.vllm_names import setting_named_in, setting_of_flag

EXCERPT_LINES = 40
SENTENCE_LIMIT = 400  # characters
DUMPED_LINE = 1 << 16  # characters of one line: a dump of the last step is longer than any other
API_SERVER = "APIServer"
ENGINE_CORE = "EngineCore"


@dataclass(frozen=True, slots=True)
class Failure:
    """Why vLLM ended.

    ``code`` names the kind, as in the table of known causes, or is one of "unknown-error", "killed",
    "process-died", "stopped-from-outside", "log-full", "ended". ``sentence`` has no full stop at its end.
    ``process`` is the one that fell first. ``exception`` and ``excerpt`` are vLLM's own words.
    ``setting`` is the profile's field to change, dotted; None where none is known to help. ``evidence``
    are lines from elsewhere in the log that bear on it, such as the drafts of the last step.
    """

    code: str
    sentence: str
    fix: str = ""
    process: str | None = None
    pid: int | None = None
    exception: str | None = None
    excerpt: tuple[str, ...] = ()
    exit_code: int | None = None
    suggested_max_model_len: int | None = None
    setting: str | None = None
    evidence: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """Sentence and fix together."""
        return f"{self.sentence}. {self.fix}" if self.fix else self.sentence


# Exceptions that only say that another process fell.
_ECHO = re.compile(
    r"WorkerProc initialization failed|Engine core initialization failed|EngineDead|EngineCore "
    r"encountered an issue|Frontend process failed|Executor failed|Engine core process \S+ died"
    r"|Process \S+ \(PID: \d+\) died|^(?:\w+\.)*(?:KeyboardInterrupt|SystemExit|CancelledError"
    r"|BrokenPipeError|EOFError|ConnectionResetError)\b"
    r"|died unexpectedly|EngineGenerateError"
)
_ENGINE_PROCESS = re.compile(r"^(?:EngineCore|Vllm_?Worker|Worker|RayWorker|DPCoordinator)")
_ENGINE_DEATH = re.compile(
    r"EngineCore encountered a fatal error|EngineCore failed to start|EngineDeadError"
    r"|died unexpectedly|WorkerProc (?:failed|hit an exception)|died with exit code"
    r"|Engine core initialization failed|engine core exited unexpectedly"
)
# How vLLM words the death of a child of its own; the exit code is negative for a signal.
_DEATH_NOTICES = (
    re.compile(
        r"Worker proc (?P<process>\S+) died unexpectedly \(exit code: (?P<code>-?\d+)\)",
        re.IGNORECASE,
    ),
    re.compile(
        r"Process (?P<process>\S+) \(PID: (?P<pid>\d+)\) died with exit code (?P<code>-?\d+)"
    ),
    re.compile(r"Failed core proc\(s\): \{'(?P<process>[^']+)': (?P<code>-?\d+)"),
    re.compile(r"Engine core proc(?:ess)? (?P<process>\S+) died unexpectedly"),
    re.compile(r"MPClient: engine core exited unexpectedly"),
    re.compile(r"Engine core initialization failed.*?Failed core proc\(s\): \{\}"),
)
# What pydantic adds to every refusal: the value in Python's words, and a link.
_PYDANTIC_TAIL = re.compile(r" *\[type=\w+, input_value=.*$", re.DOTALL)
_DRAFTER_LOADS = re.compile(
    r"create_speculative_config|config/speculative\.py|drafter\.load_model|load_draft_model"
)
_USAGE = re.compile(r"^(?P<program>\S+(?: \S+)?): error: (?P<reason>.+)$")
_OUTSIDE_STOP = re.compile(r"\[shutdown\] API server: shutdown triggered|^KeyboardInterrupt\b")


def diagnose(
    lines: str | Iterable[str | LogLine], exit_code: int | None, requested_stop: bool = False
) -> Failure | None:
    """Name the cause of vLLM's end.

    Args:
        lines: the log since the start, as one text or line by line, read already or not.
        exit_code: of the API server, negative for a signal; None while it still runs.
        requested_stop: we asked it to stop.

    Returns:
        The failure; None where there is none: the stop was asked for, or the server still runs and
        its engine lives. Exit code 0 without a request is a failure.
    """
    if requested_stop:
        return None
    source = lines.split("\n") if isinstance(lines, str) else lines
    log = tuple(parse_text(line, DUMPED_LINE) if isinstance(line, str) else line for line in source)
    if exit_code is None and not any(_ENGINE_DEATH.search(entry.message) for entry in log):
        return None
    tracebacks = find_tracebacks(log)
    failure = (
        _from_engine(log, tracebacks, exit_code)
        or _from_signal(exit_code)
        or _from_server(log, tracebacks, exit_code)
        or _without_words(log, exit_code)
    )
    return replace(failure, evidence=step_evidence(log))


def known_cause(text: str, where: str = "") -> tuple[Cause, dict[str, str]] | None:
    """The first row of the table that fits, with the groups of its pattern (unmatched ones empty)."""
    for cause in KNOWN_CAUSES:
        found = cause.pattern.search(text)
        if found and (cause.where is None or cause.where.search(where)):
            return cause, {name: value or "" for name, value in found.groupdict().items()}
    return None


def _from_engine(
    log: Sequence[LogLine], tracebacks: Sequence[Traceback], exit_code: int | None
) -> Failure | None:
    """What an engine process or a worker said first, or what was said of one that fell silently."""
    said = next((trace for trace in tracebacks if _is_engines(trace) and not _is_echo(trace)), None)
    number, death = _first_death(log, exit_code)
    if said and (death is None or said.line_number < number):
        return _from_traceback(said, exit_code)
    if death and death.code == "process-died":
        # No signal is named, so it may have ended by an exception that was printed bare.
        bare = next((trace for trace in tracebacks if not _is_echo(trace)), None)
        return _from_traceback(bare, exit_code) if bare else death
    return death


def _from_server(
    log: Sequence[LogLine], tracebacks: Sequence[Traceback], exit_code: int | None
) -> Failure | None:
    """What the API server itself said: its usage error, the traceback that ended it, an error line."""
    for entry in reversed(log):
        if (usage := _USAGE.match(entry.message)) and entry.level is None:
            return _from_text(f"error: {usage['reason']}", exit_code, excerpt=(entry.text,))
    for logged in (False, True):
        for trace in tracebacks:
            if trace.logged is logged and not _is_echo(trace):
                return _from_traceback(trace, exit_code)
    for entry in log:
        if entry.level in {"ERROR", "CRITICAL"} and known_cause(entry.message):
            return _from_text(entry.message, exit_code, entry, (entry.text,))
    return None


def _without_words(log: Sequence[LogLine], exit_code: int | None) -> Failure:
    """An end that no line explains."""
    if any(_OUTSIDE_STOP.search(entry.message) for entry in log):
        return Failure(
            "stopped-from-outside",
            "vLLM was told to stop, and not by specpanel",
            "Look for who sent it SIGTERM or SIGINT.",
            API_SERVER,
            exit_code=exit_code,
        )
    last = next((entry.text for entry in reversed(log) if entry.text.strip()), None)
    how = f"ended with exit code {exit_code}"
    if exit_code == 0:
        how += ", though nobody asked it to"
    elif exit_code is None:
        how = "no longer serves"
    return Failure(
        "ended",
        f"vLLM {how}, and its log names no cause",
        f"Its last line was: {_short(last)}" if last else "Its log is empty.",
        exit_code=exit_code,
    )


def without_room(log: Path, exit_code: int) -> Failure:
    """An end that no line explains, where the log could not grow.

    vLLM 0.32 ends where standard output cannot be flushed while its workers begin
    (``utils/system_utils.py``, ``suppress_stdout``).
    """
    return Failure(
        "log-full",
        f"vLLM ended with exit code {exit_code}, and the disk of its log has no room left: it does not "
        "start where it cannot write",
        f"Make room on the disk of {log}, or let XDG_STATE_HOME name a folder on another one.",
        exit_code=exit_code,
    )


def _is_engines(trace: Traceback) -> bool:
    return trace.process is not None and _ENGINE_PROCESS.match(trace.process) is not None


def _is_echo(trace: Traceback) -> bool:
    return all(_ECHO.search(raised.text) for raised in trace.chain)


def _first_death(log: Sequence[LogLine], exit_code: int | None) -> tuple[int, Failure | None]:
    """The first notice that an engine process fell, and its line's number."""
    for number, entry in enumerate(log):
        for notice in _DEATH_NOTICES:
            if found := notice.search(entry.message):
                parts = found.groupdict()
                process = parts.get("process") or ENGINE_CORE
                pid = parts.get("pid") or _pid_of(process, log)
                code = parts.get("code")
                return number, _death(
                    process,
                    int(pid) if pid else None,
                    int(code) if code else None,
                    (entry.text,),
                    exit_code,
                )
    return len(log), None


def _pid_of(process: str, log: Sequence[LogLine]) -> int | None:
    return next((entry.pid for entry in log if entry.process == process and entry.pid), None)


def _death(
    process: str, pid: int | None, code: int | None, excerpt: tuple[str, ...], exit_code: int | None
) -> Failure:
    name = _signal_name(code)
    how = "died without a word"
    fix = _signal_fix(name or "SIGKILL")
    if name:
        how = f"was ended by {name}"
    elif code is not None:
        how, fix = f"ended with exit code {code}", "Read the log before that line."
    return Failure(
        "killed" if name else "process-died",
        f"vLLM's process {process} {how}",
        fix,
        process,
        pid,
        None,
        excerpt,
        exit_code,
    )


def _from_signal(exit_code: int | None) -> Failure | None:
    name = _signal_name(exit_code)
    if name is None:
        return None
    return Failure(
        "killed",
        f"vLLM was ended by {name}",
        _signal_fix(name),
        API_SERVER,
        exit_code=exit_code,
    )


def _signal_name(code: int | None) -> str | None:
    """SIGKILL for -9 and for a shell's 137; None for anything that is no signal."""
    if code is None or 0 <= code <= 128:
        return None
    try:
        return signal.Signals(-code if code < 0 else code - 128).name
    except ValueError:
        return None


def _signal_fix(name: str) -> str:
    if name == "SIGKILL":
        return (
            "The kernel may have run out of memory and chosen it (look for 'Out of memory' in the "
            "kernel's log), or somebody killed it."
        )
    if name in {"SIGTERM", "SIGINT", "SIGHUP"}:
        return "Look for who sent it."
    return "It crashed in native code: look at the lines before, and try without the drafter."


def _from_traceback(trace: Traceback, exit_code: int | None) -> Failure:
    excerpt = _excerpt(trace.lines)
    everything = "\n".join(trace.lines)
    process = trace.process or API_SERVER
    for raised in trace.chain:
        said = _PYDANTIC_TAIL.sub("", raised.text)
        if not _ECHO.search(said) and (match := known_cause(said, everything)):
            known = _known(*match, raised.text, process, trace.pid, excerpt, exit_code)
            return _drafters_own(known) if _DRAFTER_LOADS.search(everything) else known
    return Failure(
        "unknown-error",
        _short(_PYDANTIC_TAIL.sub("", _chain_text(trace))),
        "Its log has the whole traceback.",
        process,
        trace.pid,
        without_secrets(trace.final.text),
        excerpt,
        exit_code,
    )


def _drafters_own(failure: Failure) -> Failure:
    """A failure of a model, where the model is the drafter."""
    setting = {"target.model": "drafter.model", "target.quantization": "drafter.quantization"}
    return replace(failure, setting=setting.get(failure.setting or "", failure.setting))


def _chain_text(trace: Traceback) -> str:
    own = [raised for raised in trace.chain if not _ECHO.search(raised.text)] or [trace.final]
    first: Raised = own[0]
    last: Raised = own[-1]
    return last.text if first is last else f"{last.text} (after {first.text})"


def _from_text(
    text: str, exit_code: int | None, entry: LogLine | None = None, excerpt: tuple[str, ...] = ()
) -> Failure:
    process = (entry.process if entry else None) or API_SERVER
    pid = entry.pid if entry else None
    if match := known_cause(text):
        return _known(*match, text, process, pid, excerpt, exit_code)
    return Failure("unknown-error", _short(text), "", process, pid, text, excerpt, exit_code)


def _known(
    cause: Cause,
    groups: dict[str, str],
    exception: str,
    process: str,
    pid: int | None,
    excerpt: tuple[str, ...],
    exit_code: int | None,
) -> Failure:
    length = groups.get("length")
    return Failure(
        cause.code,
        _short(cause.sentence.format_map(groups)).rstrip("."),
        cause.fix.format_map(groups),
        process,
        pid,
        without_secrets(exception),
        excerpt,
        exit_code,
        int(length) if length else None,
        _setting(cause, groups),
    )


def _setting(cause: Cause, groups: dict[str, str]) -> str | None:
    """The row's own setting, else the one behind the flag or the field that vLLM names."""
    if cause.setting is not None:
        return cause.setting.format_map(groups)
    if flag := groups.get("flag"):
        return setting_of_flag(flag)
    return setting_named_in(groups["what"], groups["reason"]) if "what" in groups else None


def _excerpt(lines: tuple[str, ...]) -> tuple[str, ...]:
    """The traceback's head and, what matters most, its end."""
    lines = tuple(without_secrets(line) for line in lines)
    if len(lines) <= EXCERPT_LINES:
        return lines
    left_out = len(lines) - EXCERPT_LINES
    return (lines[0], f"  … {left_out + 1} lines", *lines[-(EXCERPT_LINES - 2) :])


def _short(text: str) -> str:
    clean = " ".join(without_secrets(text).split())
    return clean if len(clean) <= SENTENCE_LIMIT else clean[: SENTENCE_LIMIT - 1] + "…"
