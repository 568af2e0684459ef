"""``specpanel check`` and its exit statuses; a refused launch, and one that is forced and says so."""

import json
from pathlib import Path

from fakes.engine.workbench import (
    FAKE_PYTHON,
    Workbench,
    command_for,
    new_record,
    wait_for,
)
from ports import free_port

from specpanel.core.engine.interpreter_facts import InterpreterFacts
from specpanel.core.engine.process import start_server

TOO_LONG = ("--set", "target.max_model_len=4096")  # the model is made for 2048


def check(bench: Workbench, *more: str) -> tuple[int, list[dict[str, object]], str]:
    panel = bench.start(
        *("check", "--model", str(bench.model), "--drafter", "ngram", "--k", "4"),
        *("--python", str(FAKE_PYTHON), "--port", str(free_port()), *more),
    )
    code = panel.end()
    lines = [json.loads(line) for line in panel.out.splitlines() if line.startswith("{")]
    return code, lines, panel.out + panel.err


def test_a_sound_profile_ends_with_0_and_shows_what_it_will_hold(bench: Workbench) -> None:
    code, _, text = check(bench)
    assert code == 0, text
    assert "nothing stands in the way" in text
    # 1 GiB over 2 * 4 * 16 * 4 bytes in each of two layers.
    assert "1,048,576" in text
    assert "2 layers of 512 B" in text


def test_what_could_not_be_judged_is_named_in_the_last_line(bench: Workbench) -> None:
    far = ("--model", "nobody/of-the-hub", "--set", "engine.tensor_parallel_size=4096")
    code, _, text = check(bench, *far)
    assert code == 0, text
    assert "[ranks-on-cpu]" in text
    last = text.rstrip().splitlines()[-1]
    assert "nothing was found that stands in the way (1 warning" in last
    assert "not judged: weights of the target (the model's files are not here), KV cache" in last
    code, lines, _ = check(bench, *far, "--strict", "--json")
    assert code == 1
    assert len(lines[-1]["not_judged"]) == 2  # type: ignore[arg-type]


def test_warnings_count_under_strict_only(bench: Workbench) -> None:
    long = ("--set", "drafter.prompt_lookup_max=64")
    code, _, text = check(bench, *long)
    assert code == 0, text
    assert "[ngram-long]" in text
    code, _, text = check(bench, *long, "--strict")
    assert code == 1, text
    code, _, text = check(bench, "--strict")
    assert code == 0, text


def test_errors_end_with_2_and_say_what_mends_them(bench: Workbench) -> None:
    code, lines, _ = check(bench, *TOO_LONG, "--json")
    assert code == 2
    assert all(list(line)[:2] == ["schema_version", "kind"] for line in lines)
    assert [line["kind"] for line in lines] == ["finding", "memory", "check"]
    finding, memory, summary = lines
    assert finding["code"] == "max-model-len"
    assert finding["mend"] == {"target.max_model_len": 2048}
    assert memory["max_model_len"] == 4096
    assert (summary["errors"], summary["exit_code"], summary["attention"]) == (1, 2, "gqa")
    bench.assert_nothing_left()


def test_run_refuses_errors_and_starts_them_when_forced_and_recorded(
    bench: Workbench, tmp_path: Path
) -> None:
    refused = bench.run(*TOO_LONG, "--port", str(free_port()))
    assert refused.end() == 2
    assert "4096 is above the 2048 positions" in refused.err
    assert refused.of_kind("launched") == []

    recording = tmp_path / "forced.ndjson"
    forced = bench.run(*(*TOO_LONG, "--force", "--record", recording, "--port", str(free_port())))
    assert forced.end() == 0, forced.err
    assert [event["codes"] for event in forced.of_kind("forced")] == [["max-model-len"]]
    assert [event["code"] for event in forced.of_kind("finding")] == ["max-model-len"]
    assert forced.summary["forced"] == ["max-model-len"]
    assert '"kind": "forced"' in recording.read_text()
    assert len(forced.of_kind("launched")) == 1
    bench.assert_nothing_left()


def test_a_port_that_our_own_server_holds_names_it_and_what_ends_it(
    bench: Workbench, fake_facts: InterpreterFacts
) -> None:
    profile = bench.profile().model_copy(update={"name": "my server"})
    record = new_record(profile, bench.folder)
    server = start_server(record, command_for(profile, fake_facts), bench.environment())
    wait_for(lambda: "startup complete" in record.log.read_text(), "the start")
    port = ("--port", str(profile.engine.port))
    code, _, text = check(bench, *port)
    assert code == 2, text
    refused = bench.run(*port)
    assert refused.end() == 1
    pid = server.record.pid
    for said in (text, refused.err):
        assert f"is taken by specpanel's own server my server (pid {pid})" in said
        assert "specpanel stop 'my server'" in said
    assert bench.start("stop", "my server").end() == 0
    assert server.exit_code is not None
    bench.assert_nothing_left()


def test_force_over_a_sound_profile_records_nothing(bench: Workbench) -> None:
    panel = bench.run("--force", "--port", str(free_port()))
    assert panel.end() == 0, panel.err
    assert panel.of_kind("forced") == []
    assert panel.summary["forced"] == []
