"""A panel as a program of its own, a misbehaving server for it, and proof that nothing stays behind."""

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import psutil
import pytest
from ports import free_port

from specpanel.core.engine.command import Command, build_command
from specpanel.core.engine.interpreter_facts import InterpreterFacts
from specpanel.core.engine.registry import ServerRecord, records
from specpanel.core.settings.profile import Profile

FAKE_PYTHON = Path(__file__).parent / "bin" / "python"
MARK = "FAKE_VLLM_TEST"  # in the environment of everything that a test starts
DEADLINE_S = 90.0
_POLL_S = 0.04
_CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "num_hidden_layers": 2,
    "vocab_size": 256,
    "max_position_embeddings": 2048,
    "dtype": "float32",
}

Value = TypeVar("Value")


def wait_for(condition: Callable[[], Value], what: str, deadline_s: float = DEADLINE_S) -> Value:
    """The first true value of ``condition``; the test fails where it does not come in time."""
    until = time.monotonic() + deadline_s
    while not (value := condition()):
        if time.monotonic() > until:
            pytest.fail(f"waited {deadline_s:g} s in vain for {what}")
        time.sleep(_POLL_S)
    return value


def lives(pid: int) -> bool:
    """Whether the process runs; a zombie does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def carriers(mark: str) -> list[int]:
    """Pids of living processes whose environment holds this test's mark, told from /proc alone."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit() or int(folder.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            if wanted in (folder / "environ").read_bytes().split(b"\0") and lives(int(folder.name)):
                found.append(int(folder.name))
    return found


@dataclass
class Panel:
    """A running ``specpanel`` command, the leader of a process group like a job of a shell."""

    process: subprocess.Popen[bytes]
    out_path: Path
    err_path: Path

    @property
    def out(self) -> str:
        return self.out_path.read_text(encoding="utf-8")

    @property
    def err(self) -> str:
        return self.err_path.read_text(encoding="utf-8")

    @property
    def events(self) -> list[dict[str, Any]]:
        """The whole lines of ``--json`` so far."""
        whole = self.out.rpartition("\n")[0]
        return [json.loads(line) for line in whole.splitlines()]

    def of_kind(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["kind"] == kind]

    @property
    def summary(self) -> dict[str, Any]:
        last = self.events[-1]
        assert last["kind"] == "summary"
        return last

    def said(self, kind: str, field: str = "") -> int:
        """How many lines of ``kind`` (with this text in them) there are; cheap enough to poll."""
        start = f'{{"schema_version": 1, "kind": "{kind}"'
        return sum(line.startswith(start) and field in line for line in self.out.splitlines())

    def until(self, what: str, condition: Callable[["Panel"], Any]) -> Any:
        """Wait until ``condition`` of this panel is true; fail at once where the panel has ended."""

        def look() -> Any:
            ended = self.process.poll() is not None
            value = condition(self)
            if ended and not value:
                pytest.fail(f"specpanel ended before {what}: {self.err}")
            return value

        return wait_for(look, what)

    def interrupt(self, number: signal.Signals = signal.SIGINT) -> None:
        """A signal as it comes in life: Ctrl-C and a closed terminal reach the whole foreground group."""
        if number == signal.SIGTERM:
            self.process.send_signal(number)
        else:
            os.killpg(self.process.pid, number)

    def end(self) -> int:
        """Wait for its end; the exit status, never with a traceback."""
        try:
            code = self.process.wait(DEADLINE_S)
        except subprocess.TimeoutExpired:
            pytest.fail(f"specpanel did not end: {self.err}\n{self.out[-2000:]}")
        assert "Traceback" not in self.err, self.err
        return code


@dataclass
class Workbench:
    """What a test of the session works with, in an empty folder; all it starts carries its mark."""

    folder: Path
    mark: str = field(default_factory=lambda: uuid.uuid4().hex)
    panels: list[Panel] = field(default_factory=list)
    _names: Iterator[int] = field(default_factory=itertools.count)

    def __post_init__(self) -> None:
        self.model = self.folder / "model"
        self.model.mkdir(parents=True)
        (self.model / "config.json").write_text(json.dumps(_CONFIG))
        # A safetensors file without a tensor: the length of its header, and the header.
        (self.model / "model.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")

    def environment(self, script: dict[str, Any] | None = None, **more: str) -> dict[str, str]:
        return {
            **os.environ,
            "FAKE_VLLM": json.dumps(script or {}),
            "FAKE_VLLM_PYTHON": sys.executable,
            MARK: self.mark,
            **more,
        }

    def start(
        self,
        *arguments: str | Path,
        script: dict[str, Any] | None = None,
        environment: dict[str, str] | None = None,
        program: Sequence[str] = ("-m", "specpanel.app"),
        inside: Path | None = None,
    ) -> Panel:
        """``specpanel ARGUMENTS`` as a process; its output goes to files, which never block it."""
        number = next(self._names)
        out, err = self.folder / f"{number}.out", self.folder / f"{number}.err"
        with out.open("wb") as stdout, err.open("wb") as stderr:
            process = subprocess.Popen(
                [sys.executable, *program, *map(str, arguments)],
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                env=self.environment(script, **(environment or {})),
                cwd=inside or self.folder,
                process_group=0,
            )
        self.panels.append(Panel(process, out, err))
        return self.panels[-1]

    def run(self, *more: str | Path, script: dict[str, Any] | None = None, **kwargs: Any) -> Panel:
        """``specpanel run --json`` with the misbehaving server, four short requests."""
        return self.start("run", *self.flags(), *more, script=script, **kwargs)

    def serve(
        self,
        *flags: str,
        script: dict[str, Any] | None = None,
        environment: dict[str, str] | None = None,
    ) -> tuple[Panel, str]:
        """The misbehaving server itself, started by nobody of ours; its process, and its address once up."""
        port = str(free_port())
        begin = f"import os, sys; os.execv({str(FAKE_PYTHON)!r}, ['python', '-m', *sys.argv[1:]])"
        server = self.start(
            *("vllm.entrypoints.openai.api_server", "--model", str(self.model), "--port", port),
            *flags,
            script=script,
            environment=environment,
            program=("-c", begin),
        )
        wait_for(lambda: "startup complete" in server.out, "the start of the server")
        return server, f"http://127.0.0.1:{port}"

    def flags(self) -> Sequence[str]:
        settings = {
            "traffic.warmup": 1,
            "traffic.max_tokens": 12,
            "target.max_model_len": 1024,
            "engine.cpu_kv_cache_gib": 1,
        }
        return (
            *("--model", str(self.model), "--drafter", "ngram", "--k", "4", "--requests", "4"),
            *("--python", str(FAKE_PYTHON), "--port", str(free_port()), "--json"),
            *(text for name, value in settings.items() for text in ("--set", f"{name}={value}")),
        )

    def profile(self, **engine: Any) -> Profile:
        """The same launch as a profile."""
        return Profile.model_validate(
            {
                "name": "bench",
                "target": {"model": str(self.model), "served_name": "bench"},
                "engine": {
                    "python": str(FAKE_PYTHON),
                    "port": free_port(),
                    "stop_timeout_s": 1.0,
                    **engine,
                },
                "drafter": {"method": "ngram", "k": 4},
            }
        )

    def left(self) -> list[int]:
        return carriers(self.mark)

    def assert_nothing_left(self) -> None:
        """No process of the test runs, and no state file tells of one."""
        running = {pid: _shown(pid) for pid in self.left()}
        assert not running
        assert records() == []

    def clear(self) -> None:
        """End what the test left: only processes with its mark."""
        for pid in self.left():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for panel in self.panels:
            panel.process.wait(DEADLINE_S)


def _shown(pid: int) -> str:
    try:
        return " ".join(psutil.Process(pid).cmdline())
    except psutil.NoSuchProcess:
        return "gone by now"


def new_record(profile: Profile, folder: Path, **more: Any) -> ServerRecord:
    """A state file's content for a server that is about to be started."""
    return ServerRecord.model_validate(
        {
            "id": uuid.uuid4().hex,
            "name": profile.name,
            "profile": profile.name,
            "model": "bench",
            "drafter": "ngram",
            "host": profile.engine.host,
            "port": profile.engine.port,
            "log": folder / "server.log",
            "argv": (),
            "started_unix": time.time(),
            "owner_pid": os.getpid(),
            **more,
        }
    )


def command_for(profile: Profile, facts: InterpreterFacts) -> Command:
    return build_command(profile, facts, os.environ)


@dataclass(frozen=True)
class Flight:
    """A whole ``specpanel run``: what is asked for, how the server behaves, and a signal in between."""

    arguments: Sequence[str] = ()
    script: dict[str, Any] = field(default_factory=dict)
    sign: signal.Signals | None = None
    reached: Callable[[Panel], Any] = lambda _: True  # when the signal comes
    held_in_preflight: bool = False  # until the signal has come


@dataclass(frozen=True)
class Ended:
    """A run that is over, and what was left of it then: pids and state files."""

    panel: Panel
    recording: Path
    code: int
    left: list[int | str]


def fly(flight: Flight, folder: Path) -> Ended:
    """Do one run to its end, in ``folder`` and with XDG folders of its own below it.

    Safe in a thread: the environment of this process belongs to the test that runs meanwhile.
    """
    bench = Workbench(folder)
    recording, gate, state = folder / "run.ndjson", folder / "gate", folder / "state"
    given = {f"XDG_{name.upper()}_HOME": str(folder / name) for name in ("cache", "config", "data")}
    given["XDG_STATE_HOME"] = str(state)
    if flight.held_in_preflight:
        given["FAKE_VLLM_GATE"] = str(gate)
    try:
        panel = bench.run(
            "--record", recording, *flight.arguments, script=flight.script, environment=given
        )
        if flight.sign is not None:
            panel.until(f"{folder.name} was reached", flight.reached)
            panel.interrupt(flight.sign)
        gate.touch()
        code = panel.end()
        files = [path.name for path in (state / "specpanel" / "servers").glob("*")]
        return Ended(panel, recording, code, [*bench.left(), *files])
    finally:
        bench.clear()


@contextlib.contextmanager
def side_by_side(flights: dict[str, Flight], folder: Path) -> Iterator[dict[str, "Future[Ended]"]]:
    """All runs, some at a time: most of a run is waiting."""
    with ThreadPoolExecutor(4) as pool:
        yield {name: pool.submit(fly, flight, folder / name) for name, flight in flights.items()}
