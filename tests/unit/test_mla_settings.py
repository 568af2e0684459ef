"""Attention and MLA settings: where each goes in vLLM, and for which models a form shows it."""

import json
from typing import Any

import pytest
from pydantic import ValidationError

from specpanel.core.engine.command import build_command
from specpanel.core.engine.interpreter_facts import InterpreterFacts
from specpanel.core.settings.attention_backends import BACKENDS, backends_for, find_backend
from specpanel.core.settings.mla import Mla, Subject
from specpanel.core.settings.profile import Profile
from specpanel.core.settings.rows import rows, table_of, validated, with_value

FACTS = InterpreterFacts(
    *("/venv/bin/python", "3.12.1", "vllm", "0.32.0", "cuda", "serve", "/venv/bin/vllm"),
    frozenset({"vllm"}),
)


def profile(**mla: Any) -> Profile:
    return Profile.model_validate({"target": {"model": "/models/x"}, "mla": mla})


def names(subject: Subject | None, **mla: Any) -> set[str]:
    return {
        row.name for row in rows(table_of(profile(**mla)), None, subject) if row.section == "mla"
    }


def test_each_setting_reaches_its_place_in_the_command() -> None:
    chosen = profile(
        attention_backend="flashmla_sparse",
        backend_per_kind={"mla_attention": "flashmla"},
        kv_cache_dtype="fp8_ds_mla",
        block_size=64,
        mla_prefill_backend="FLASH_ATTN",
        force_sparse_mqa=True,
        indexer_kv_dtype="fp8",
        indexer_topk_backend="persistent",
        prefill_workspace_factor=2,
        decode_context_parallel_size=2,
        dcp_comm_backend="a2a",
        disable_mla=False,
        rocm_aiter=True,
        rocm_aiter_mla_padding="gluon",
    )
    command = build_command(chosen, FACTS)
    argv = list(command.argv)

    def value(flag: str) -> str:
        return argv[argv.index(flag) + 1]

    assert value("--attention-backend") == "FLASHMLA_SPARSE"
    assert value("--kv-cache-dtype") == "fp8_ds_mla"
    assert value("--block-size") == "64"
    assert value("--sparse-indexer-topk-backend") == "persistent"
    assert value("--decode-context-parallel-size") == "2"
    assert value("--dcp-comm-backend") == "a2a"
    assert json.loads(value("--attention-config")) == {
        "backend_per_kind": {"mla_attention": "FLASHMLA"},
        "mla_prefill_backend": "FLASH_ATTN",
        "sparse_mla_force_mqa": True,
        "indexer_kv_dtype": "fp8",
        "sparse_mla_prefill_workspace_factor": 2,
    }
    assert command.environment["VLLM_MLA_DISABLE"] == "0"
    assert command.environment["VLLM_ROCM_USE_AITER"] == "1"
    assert command.environment["VLLM_ROCM_AITER_MLA_ASM_PADDING"] == "gluon"


def test_nothing_chosen_is_nothing_said() -> None:
    command = build_command(profile(), FACTS)
    assert not any("attention" in word or "context-parallel" in word for word in command.argv)
    assert not any(name.startswith(("VLLM_MLA", "VLLM_ROCM")) for name in command.environment)


def test_every_setting_has_a_place() -> None:
    for name, field in Mla.model_fields.items():
        extra = field.json_schema_extra
        assert isinstance(extra, dict)
        assert {"flag", "attention_key", "variable"} & extra.keys(), name
        assert field.description


def test_a_form_shows_what_the_model_has() -> None:
    plain = names(Subject("gqa", "cuda"))
    dense = names(Subject("mla", "cuda"))
    sparse = names(Subject("sparse", "cuda"))
    assert plain == {"attention_backend", "backend_per_kind", "kv_cache_dtype", "block_size"}
    assert dense - plain >= {"mla_prefill_backend", "decode_context_parallel_size", "disable_mla"}
    assert "force_sparse_mqa" not in dense
    assert sparse - dense >= {"force_sparse_mqa", "indexer_kv_dtype", "prefill_workspace_factor"}
    assert {"rocm_aiter"} <= names(Subject("sparse", "rocm")) - sparse


def test_where_nothing_is_known_everything_is_offered() -> None:
    assert names(None) == set(Mla.model_fields) == names(Subject(None, "unknown"))


def test_a_setting_that_is_set_is_shown_wherever() -> None:
    assert "force_sparse_mqa" in names(Subject("gqa", "cuda"), force_sparse_mqa=True)


def test_backends_are_offered_by_platform_and_model() -> None:
    table = table_of(profile())

    def offered(subject: Subject | None) -> tuple[str, tuple[str, ...]]:
        row = next(r for r in rows(table, None, subject) if r.name == "attention_backend")
        return row.kind, row.choices

    assert offered(Subject("mla", "cpu")) == ("choice", ("CPU_MLA", "AMX_MLA"))
    assert "TRITON_MLA" in offered(Subject("mla", "rocm"))[1]
    assert "FLASHMLA_SPARSE" in offered(Subject("sparse", "cuda"))[1]
    assert offered(None) == ("text", ())


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"backend_per_kind": {"mla": "X"}}, "no kind of layer"),
        ({"kv_cache_dtype": "fp7"}, "fp8_ds_mla"),
        ({"prefill_workspace_factor": 1}, "greater than or equal to 2"),
        ({"rocm_aiter": False, "rocm_aiter_triton_sparse_mla": True}, "needs rocm_aiter"),
        ({"decode_context_parallel_size": 0}, "greater than or equal to 1"),
    ],
)
def test_what_cannot_be_is_refused(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        Mla.model_validate(wrong)


def test_every_choice_that_a_form_offers_is_a_profile() -> None:
    table = table_of(profile())
    for row in rows(table, None, Subject("sparse", "rocm")):
        if row.section == "mla" and row.kind == "choice" and row.choices:
            found = validated(with_value(table, row.dotted, row.choices[0]))
            assert isinstance(found, Profile), (row.dotted, found)


def test_blocks_are_judged_as_the_backend_counts_them() -> None:
    flashmla, cpu = find_backend("FLASHMLA", "cuda", "mla"), find_backend("CPU_MLA", "cpu", "mla")
    assert flashmla is not None
    assert cpu is not None
    assert [flashmla.allows_block(size) for size in (16, 64, 128)] == [False, True, True]
    assert [cpu.allows_block(size) for size in (16, 32)] == [True, False]
    assert len({(b.name, b.platform, b.kind) for b in BACKENDS}) == len(BACKENDS)
    assert {b.name for b in backends_for("rocm", "sparse")} == {"ROCM_AITER_MLA_SPARSE"}
