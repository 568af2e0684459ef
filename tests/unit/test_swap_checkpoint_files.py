"""Damaged drafter checkpoints, told apart from the files alone."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from fakes import drafter_checkpoints as tiny

torch = pytest.importorskip("torch")
from safetensors.torch import load_file, save_file  # noqa: E402

from specpanel.core.inside.drafter_reload import checkpoint  # noqa: E402
from specpanel.core.inside.drafter_reload.refusal import RefusedError  # noqa: E402

Tensors = dict[str, torch.Tensor]


@pytest.fixture
def served(tmp_path: Path) -> Path:
    return tiny.write_eagle3(tmp_path / "served", tmp_path / "target")


def changed(served: Path, change: Callable[[Tensors], object]) -> Path:
    """Another checkpoint, like the served one but for ``change``."""
    folder = served.parent / "changed"
    folder.mkdir()
    (folder / "config.json").write_bytes((served / "config.json").read_bytes())
    tensors = load_file(served / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")
    return folder


def take(folder: Path, served: Path) -> None:
    found = checkpoint.read(folder)
    checkpoint.compare_with_served(found.tensors, served, {"embed_tokens"})
    checkpoint.check_mapping(found.tensors, tiny.VOCABULARY)


def put(name: str, value: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Tensors], object]:
    return lambda tensors: tensors.update({name: value(tensors[name]).contiguous()})


def drop(name: str) -> Callable[[Tensors], object]:
    return lambda tensors: tensors.pop(name)


def spoilt(tensor: torch.Tensor, value: float) -> torch.Tensor:
    tensor = tensor.clone()
    tensor.view(-1)[5] = value
    return tensor


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (drop("fc.weight"), "not in the checkpoint: fc.weight"),
        (drop("layers.0.self_attn.k_proj.weight"), "not in the checkpoint: layers.0.self_attn.k"),
        (drop("lm_head.weight"), "not in the checkpoint: lm_head.weight"),
        (drop("d2t"), "not in the checkpoint: d2t"),
        (
            put("fc.weight", lambda t: t[:, :-1]),
            r"fc.weight is \[64, 191\], the served one \[64, 192",
        ),
        (put("layers.0.self_attn.q_proj.weight", lambda t: t[:-1]), "q_proj.weight is"),
        (put("lm_head.weight", lambda t: t[:-8]), "lm_head.weight is"),
        (lambda t: t.update(extra=torch.zeros(3)), "not in the served checkpoint: extra"),
        (put("norm.weight", lambda t: spoilt(t, float("nan"))), "NaN or infinity in norm.weight"),
        (put("fc.weight", lambda t: spoilt(t, float("inf"))), "NaN or infinity in fc.weight"),
        (put("fc.weight", lambda t: t.to(torch.int32)), "fc.weight holds integers, .* numbers"),
        (
            put("fc.weight", lambda t: t.to(torch.float8_e4m3fn)),
            "fc.weight holds numbers of 8 bits",
        ),
        (put("d2t", lambda t: t + tiny.VOCABULARY), "points outside the target's 320 tokens"),
        (put("d2t", lambda t: t - tiny.VOCABULARY), "points outside the target's 320 tokens"),
    ],
)
def test_a_damaged_checkpoint_is_refused_by_name(
    served: Path, change: Callable[[Tensors], object], reason: str
) -> None:
    with pytest.raises(RefusedError, match=reason):
        take(changed(served, change), served)


def test_another_precision_and_no_shared_embedding_are_taken(served: Path) -> None:
    def change(tensors: Tensors) -> None:
        tensors["fc.weight"] = tensors["fc.weight"].float()
        del tensors["embed_tokens.weight"]

    take(changed(served, change), served)


@pytest.mark.parametrize("keep", [0, 7, 100, 5000])
def test_a_file_that_is_still_being_written_is_refused(served: Path, keep: int) -> None:
    file = served / "model.safetensors"
    file.write_bytes(file.read_bytes()[:keep])
    with pytest.raises(RefusedError, match=r"model.safetensors cannot be read, or is not whole"):
        checkpoint.read(served)


def test_a_tensor_in_two_files_is_refused(served: Path) -> None:
    save_file({"d2t": torch.zeros(3)}, served / "other.safetensors")
    with pytest.raises(RefusedError, match="stored twice: d2t"):
        checkpoint.read(served)


def test_absent_and_empty_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match="there is no folder"):
        checkpoint.read(tmp_path / "absent")
    with pytest.raises(RefusedError, match=r"holds no \.safetensors file"):
        checkpoint.read(tmp_path)


def test_a_served_folder_that_is_gone_leaves_the_check_to_the_model(served: Path) -> None:
    tensors = checkpoint.read(served).tensors
    checkpoint.compare_with_served(tensors, Path("organisation/model"), set())


def test_the_digest_follows_the_content(served: Path, tmp_path: Path) -> None:
    first = checkpoint.read(served).digest
    assert checkpoint.read(served).digest == first
    other = changed(served, put("norm.weight", lambda t: t * 2))
    assert checkpoint.read(other).digest != first
    assert json.loads((other / "config.json").read_text())["speculators_model_type"] == "eagle3"
