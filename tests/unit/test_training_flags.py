"""Every flag of ours is one of the trainer's, by the source that is installed."""

import ast
import importlib.util
from pathlib import Path

import pytest

from specpanel.core.training.algorithms import KINDS, Settings, flags_of
from specpanel.core.training.recipe import Extraction, Trainer


@pytest.fixture(scope="module")
def trainers_flags() -> dict[str, bool]:
    """The installed trainer's flags, and whether each may be switched off."""
    found = importlib.util.find_spec("speculators")
    if found is None or not found.submodule_search_locations:
        pytest.skip("Speculators is not installed (make train-demo installs it)")
    schema = Path(next(iter(found.submodule_search_locations))) / "train/config/schema.py"
    flags: dict[str, bool] = {}
    for node in ast.walk(ast.parse(schema.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.ClassDef):
            continue
        for line in node.body:
            if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
                kind = ast.unparse(line.annotation)
                flags[f"--{line.target.id.replace('_', '-')}"] = "bool" in kind
    return flags


MODELS = [kind.settings for kind in KINDS.values()] + [Trainer, Extraction]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_every_flag_is_the_trainers_own(
    model: type[Settings], trainers_flags: dict[str, bool]
) -> None:
    named = [
        extra["flag"]
        for field in model.model_fields.values()
        if isinstance(extra := field.json_schema_extra, dict) and "flag" in extra
    ]
    assert [flag for flag in named if flag not in trainers_flags] == []
    switches = [
        extra["flag"]
        for field in model.model_fields.values()
        if "bool" in str(field.annotation)
        and isinstance(extra := field.json_schema_extra, dict)
        and "flag" in extra
    ]
    assert [flag for flag in switches if not trainers_flags[str(flag)]] == []


def test_flags_follow_what_is_set() -> None:
    settings = KINDS["eagle3"].settings.model_validate(
        {"full_attention_indices": [0, 1], "fc_norm": True, "norm_output": False}
    )
    assert list(flags_of(settings)) == [
        *("--full-attention-indices", "0", "1"),
        *("--ttt-steps", "3", "--fc-norm", "--no-norm-output"),
    ]
