"""Whatever a reader is given: our own errors or an answer, within a second and little memory a megabyte.

The generated part is bounded by its number of examples; `FUZZ=20 make fuzz` tries twenty times as many.
"""

import json
import os
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pace import cheapest_s

from specpanel.core.checkpoints.config import parse_config, read_config
from specpanel.core.checkpoints.drafters import recognise
from specpanel.core.checkpoints.weights import read_weights
from specpanel.core.engine.chosen import ChosenReader
from specpanel.core.engine.failures import diagnose
from specpanel.core.engine.log_filter import LogFilter
from specpanel.core.engine.logline import parse_line
from specpanel.core.engine.metrics import parse_exposition
from specpanel.core.engine.phases import PhaseTracker
from specpanel.core.errors import SpecpanelError
from specpanel.core.monitor.recording import read_recording
from specpanel.core.monitor.window import Window
from specpanel.core.session.history import read_run
from specpanel.core.settings.files import read_profile
from specpanel.core.traffic.prompts import read_prompts
from specpanel.core.training.conversations import read_lines
from specpanel.core.training.progress import prediction, read_metrics
from specpanel.core.training.story import Story

DATA = Path(__file__).parents[1] / "data"
MEBIBYTE = 1 << 20
LIMIT_S = 1.0
MOST_MEMORY_BYTES = 256 * MEBIBYTE
EXAMPLES = 25 * int(os.environ.get("FUZZ", "1"))

fuzzed = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize="FUZZ" not in os.environ,
    phases=(Phase.explicit, Phase.generate, Phase.shrink),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

Reader = Callable[[bytes, Path], object]


def exposition(data: bytes, _: Path) -> None:
    window = Window()
    for second in (0.0, 1.0):
        window.add(second, parse_exposition(data.decode("utf-8", "replace")).counters)
    window.speculation(), window.engine(), window.latency()


def log(data: bytes, _: Path) -> None:
    tracker, chosen = PhaseTracker(0.0), ChosenReader()
    for number, raw in enumerate(data.split(b"\n")):
        line = parse_line(raw)
        assert len(line.text) <= 4096
        tracker.feed(line, float(number))
        chosen.feed(line)


def diagnosis(data: bytes, _: Path) -> None:
    diagnose((raw.decode("utf-8", "replace") for raw in data.split(b"\n")), exit_code=1)


def log_filter(data: bytes, _: Path) -> None:
    LogFilter().select(data)


def profile(data: bytes, folder: Path) -> None:
    read_profile(_file(folder, "fuzzed.toml", data))


def config(data: bytes, folder: Path) -> None:
    _file(folder, "config.json", data)
    read_config(folder)


def recording(data: bytes, folder: Path) -> None:
    path = _file(folder, "fuzzed.ndjson", data)
    read_run(path)
    for _ in read_recording(path):
        pass


def safetensors(data: bytes, folder: Path) -> None:
    _file(folder, "model.safetensors", data)
    read_weights(folder)


def conversations(data: bytes, folder: Path) -> None:
    read_lines(data.split(b"\n"), "file", answers_needed=True)
    read_prompts(_file(folder, "prompts.jsonl", data))


def story(data: bytes, _: Path) -> None:
    found_out = Story()
    for line in data.split(b"\n"):
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            continue
        found_out.take(found if isinstance(found, dict) else None)
        if isinstance(found, dict):
            prediction(found)
    list(found_out.shown_stages())
    found_out.alarms()


READERS: dict[str, Reader] = {
    one.__name__: one
    for one in (
        *(
            exposition,
            log,
            diagnosis,
            log_filter,
            profile,
            config,
            recording,
            safetensors,
            conversations,
            story,
        ),
    )
}


def _file(folder: Path, name: str, data: bytes) -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


def told(action: Callable[[], object]) -> str:
    """The words of our own error, empty where there is none; anything else is the test's failure."""
    try:
        action()
    except SpecpanelError as error:
        return error.message or "(nothing said)"
    return ""


def tried(reader: Reader, data: bytes, folder: Path) -> None:
    """Anything but an answer or one of our errors, in one short line, fails the test."""
    said = told(lambda: reader(data, folder))
    assert said != "(nothing said)"
    assert "\n" not in said
    assert len(said) < 2000


# -- real inputs, cut, mixed and bent ---------------------------------------------------------


def _seeds() -> dict[str, list[bytes]]:
    logs = sorted((DATA / "logs").glob("*.txt"))
    return {
        "exposition": [path.read_bytes() for path in sorted(DATA.glob("metrics_*.txt"))],
        **{
            name: [path.read_bytes()[:8000] for path in logs[:6]]
            for name in ("log", "diagnosis", "log_filter")
        },
        "profile": [
            b'description = "x"\n[target]\nmodel = "/m"\n[drafter]\nmethod = "ngram"\nk = 4\n'
            b'[engine]\nport = 8000\narguments = ["--seed", "1"]\n[engine.environment]\nA = "b"\n'
        ],
        "config": [path.read_bytes() for path in sorted((DATA / "configs").rglob("*.json"))[:6]],
        "recording": [
            b"\n".join(path.read_bytes().splitlines()[:6])
            for path in sorted((DATA / "recordings").glob("*.ndjson"))
        ],
        "safetensors": [
            (len(head)).to_bytes(8, "little") + head
            for head in (b'{"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}}', b"{}")
        ],
        "conversations": [
            b'{"messages":[{"role":"user","content":"2+2?"},{"role":"assistant","content":"4"}]}\n'
            b'{"prompt":"why","system":"s"}'
        ],
        "story": [
            b'{"kind":"recipe","recipe":{"name":"r","train":{"steps":5}}}\n'
            b'{"kind":"step","step":1,"loss":1.5,"full_acc_0":0.5,"elapsed_s":3}\n'
            b'{"kind":"validation","step":1,"metrics":{"position_1_acc":0.4,"eal":2}}'
        ],
    }


SEEDS = _seeds()
TOKENS = (
    *(b"\x00", b"\xff\xfe", b"\n", b"\r", b"{", b"}", b'"', b"\\", b"[", b"]", b"1e999", b"-1"),
    *(b"NaN", b"Infinity", b"null", b"true", b"9" * 400, b"\x1b[2J", b"\xe2\x80\xae", b"\\ud800"),
    *(b"[[[[[[[[", b"{}", b"=", b"#", b" ", b"0", b"''", b"\xed\xa0\x80"),
)


@st.composite
def bent(draw: st.DrawFn, name: str) -> bytes:
    """A real input with pieces cut out, put twice, or replaced by what tends to hurt."""
    data = bytearray(draw(st.sampled_from(SEEDS[name])))
    for _ in range(draw(st.integers(1, 6))):
        start = draw(st.integers(0, len(data)))
        end = min(len(data), start + draw(st.integers(0, 40)))
        piece = draw(
            st.sampled_from(TOKENS) | st.binary(max_size=8) | st.just(bytes(data[start:end]) * 2)
        )
        data[start:end] = piece
    return bytes(data)


@pytest.mark.parametrize("name", READERS)
@fuzzed
@given(data=st.data())
def test_a_bent_input_gives_an_answer_or_our_own_error(
    name: str, data: st.DataObject, tmp_path: Path
):
    tried(READERS[name], data.draw(bent(name) | st.binary(max_size=200)), tmp_path)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)
CONFIG_KEYS = sorted({key for seed in SEEDS["config"] for key in json.loads(seed)})
STORY_KEYS = ("step", "loss", "elapsed_s", "metrics", "recipe", "name", "stage", "text", "path")
STORY_KINDS = sorted(
    name.removeprefix("_take_") for name in vars(Story) if name.startswith("_take_")
)


@fuzzed
@given(st.dictionaries(st.sampled_from(CONFIG_KEYS), json_values, max_size=6))
def test_known_keys_of_a_config_may_hold_anything(values: dict[str, Any]):
    assert (
        told(lambda: recognise(parse_config(values, Path("/m")), values, "m")) != "(nothing said)"
    )


@fuzzed
@given(
    st.lists(
        st.tuples(
            st.sampled_from(STORY_KINDS),
            st.dictionaries(st.sampled_from(STORY_KEYS), json_values, max_size=4),
        ),
        max_size=5,
    )
)
def test_known_lines_of_a_training_may_hold_anything(lines: list[tuple[str, dict[str, Any]]]):
    story = Story()
    for kind, values in lines:
        story.take({"schema_version": 1, "kind": kind, **values})
    story.alarms()
    for _, values in lines:
        prediction(values)
        read_metrics(values, 0.0)


# -- a megabyte at its worst ------------------------------------------------------------------


def _repeated(piece: bytes) -> bytes:
    return piece * (MEBIBYTE // len(piece))


WORST: dict[str, list[bytes]] = {
    "exposition": [
        _repeated(b"vllm:num_requests_running 1\n"),
        _repeated(b"vllm:"),
        b'vllm:num_requests_running{a="' + _repeated(b"\\\\") + b'"} 1\n',
        _repeated(b"vllm:num_requests_running{"),
        _repeated(b" "),
    ],
    "log": [
        _repeated(b"a"),
        _repeated(b"\x1b]0;"),
        _repeated(b"\r"),
        _repeated(b"("),
        _repeated(b"{"),
    ],
    "diagnosis": [
        _repeated(b"Traceback (most recent call last):\n"),
        _repeated(b"RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB\n"),
        _repeated(b"(EngineCore pid=1) ERROR 11-30 12:00:00 [core.py:1] ValueError: x\n"),
        b"ValueError: " + _repeated(b"scheduled_spec_decode_tokens={"),
    ],
    "log_filter": [
        _repeated(b"ERROR \x1b["),
        _repeated(b"UserWarning: something looks odd, see the documentation of it\n"),
    ],
    "profile": [
        _repeated(b"["),
        b"a = " + _repeated(b"["),
        b'a = """' + _repeated(b"x"),
        _repeated(b"a.b.c = 1\n"),
    ],
    "config": [_repeated(b"["), b'{"a":' + _repeated(b"9"), b'{"a":"' + _repeated(b"x") + b'"}'],
    "recording": [
        _repeated(b"["),
        _repeated(b'{"schema_version": 1, "kind": "note"}\n'),
        b'{"schema_version": 1, "kind": "frame", "x": "' + _repeated(b"y") + b'"}\n',
        _repeated(b"\n"),
    ],
    "safetensors": [
        MEBIBYTE.to_bytes(8, "little") + _repeated(b"["),
        (2**63).to_bytes(8, "little") + _repeated(b"{"),
        b"\xff" * 8 + _repeated(b"x"),
    ],
    "conversations": [
        _repeated(b"["),
        _repeated(b'{"messages": []}\n'),
        _repeated(b"\n"),
    ],
    "story": [_repeated(b'{"kind": "step", "step": 1}\n'), _repeated(b"[")],
}


@pytest.mark.parametrize(
    ("name", "number"),
    [(name, number) for name, found in WORST.items() for number in range(len(found))],
)
def test_a_megabyte_at_its_worst_takes_less_than_a_second_and_little_memory(
    name: str, number: int, tmp_path: Path
):
    data = WORST[name][number]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert cheapest_s(lambda: tried(READERS[name], data, tmp_path), LIMIT_S, times=3) < LIMIT_S
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown * 1024 < MOST_MEMORY_BYTES
