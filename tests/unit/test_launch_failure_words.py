"""What a person is told when vLLM ended: the cause, the fix, the setting, the log."""

from pathlib import Path

from specpanel.core.engine.failures import diagnose
from specpanel.core.engine.registry import ServerRecord, new_id
from specpanel.core.session.launch import VllmEndedError
from specpanel.core.session.served import served_record

LOGS = Path(__file__).parents[1] / "data" / "logs"


def ended(log: Path, exit_code: int) -> VllmEndedError:
    failure = diagnose(log.read_text(), exit_code)
    assert failure is not None
    return VllmEndedError(failure, log)


def test_the_error_names_the_fix_the_setting_and_the_log():
    log = LOGS / "len_too_large.txt"
    error = ended(log, 1)
    assert error.message == "max_model_len 100000 is above what the model was made for (8192)"
    assert error.fix == (
        f"Set max_model_len to 8192 or less. Setting: target.max_model_len. Log: {log}"
    )


def test_what_the_log_says_of_the_last_step_is_told_too():
    error = ended(LOGS / "synthetic_cpu.txt", 0)
    assert "In its log: KV cache 1% full, 1 requests running." in error.fix
    assert "Setting: drafter.rejection_sample_method." in error.fix


def test_an_end_without_a_setting_names_none():
    assert "Setting" not in ended(LOGS / "kill_start.txt", 1).fix


def record(log: Path) -> ServerRecord:
    return ServerRecord(
        id=new_id(),
        name="x",
        profile="x",
        model="m",
        drafter="ngram",
        draft_tokens=4,
        host="127.0.0.1",
        port=20444,
        log=log,
        argv=("vllm",),
        started_unix=0.0,
        owner_pid=1,
        pid=1,
        start_mark="another boot/1",
    )


def test_an_adopted_server_that_ended_says_why_from_its_log():
    served = served_record(record(LOGS / "kill_serving.txt"))
    served.look()
    assert served.facts.detail == "vLLM's process EngineCore died without a word"


def test_an_adopted_server_whose_log_says_nothing_has_just_ended():
    served = served_record(record(LOGS / "ngram_good.txt"))
    served.look()
    assert served.facts.detail == "its process has ended"
