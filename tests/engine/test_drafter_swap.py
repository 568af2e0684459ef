"""The drafter of one real vLLM is replaced while it runs: same text, known acceptance, nothing lost.

The target answers with one token for ever. Drafter A proposes that token at every position (acceptance
length K + 1 = 4), B another one (1): what vLLM counts tells which weights draft.
"""

import asyncio
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from fakes import drafter_checkpoints as tiny
from pace import within
from ports import free_port

from specpanel.core.training.swap import CheckpointRefusedError, DrafterStatus, DrafterSwap, Swapped
from specpanel.core.training.worker_calls import SwapError

EXTENSIONS = Path(tiny.__file__).parent / "worker_extensions"
LONGEST_PAUSE_S = 1.0


@dataclass(frozen=True)
class Swappable:
    """The running server and the two drafters."""

    url: str
    name: str
    a: Path
    b: Path

    def swap(self, folder: Path) -> Swapped:
        async def go() -> Swapped:
            async with DrafterSwap(self.url) as drafter:
                return await drafter.swap(folder)

        return asyncio.run(go())

    def status(self) -> DrafterStatus:
        async def go() -> DrafterStatus:
            async with DrafterSwap(self.url) as drafter:
                return await drafter.status()

        return asyncio.run(go())

    def ask(self, prompt: str, tokens: int = 40) -> str:
        body = {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True}
        answer = httpx.post(f"{self.url}/v1/completions", json=body, timeout=120)
        assert answer.status_code == 200, answer.text
        (choice,) = answer.json()["choices"]
        assert answer.json()["usage"]["completion_tokens"] == tokens
        return str(choice["text"])

    def counted(self) -> tuple[float, float]:
        """Drafts and accepted tokens since the start."""
        found = dict.fromkeys(("drafts", "accepted_tokens"), 0.0)
        for line in httpx.get(f"{self.url}/metrics").text.splitlines():
            for name in found:
                if line.startswith(f"vllm:spec_decode_num_{name}_total"):
                    found[name] += float(line.rpartition(" ")[2])
        return found["drafts"], found["accepted_tokens"]

    def flight(self) -> tuple[float, tuple[float, float], list[str]]:
        """Acceptance length, drafts and accepted tokens, and the text, of the same six prompts."""
        drafts, accepted = self.counted()
        texts = [self.ask(f"{number} is a number", 32) for number in range(6)]
        more_drafts, more_accepted = self.counted()
        counts = (more_drafts - drafts, more_accepted - accepted)
        return 1 + counts[1] / counts[0], counts, texts


@pytest.fixture(scope="module")
def swappable(specpanel: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Swappable]:
    folder = tmp_path_factory.mktemp("swap")
    target = tiny.write_target(folder / "target")
    a = tiny.write_eagle3(folder / "a", target)
    b = variant(a, folder / "b", wrong_answer)
    port = free_port()
    run = with_fault(specpanel).run(
        *("run", "--model", str(target), "--drafter", "eagle3", "--draft-model", str(a)),
        *("--k", "3", "--port", str(port), "--requests", "1", "--keep-running", "--json"),
        *("--no-record", "--set", "engine.swappable=true", "--set", "traffic.warmup=0"),
        *("--", "--worker-extension-cls", "failing_copy.FailingReload"),
        seconds=600,
    )
    assert run.code == 0, run.err
    (found,) = (
        line
        for line in map(json.loads, specpanel.run("ps", "--json").out.splitlines())
        if line["port"] == port
    )
    yield Swappable(found["url"], found["name"], a, b)
    assert specpanel.run("stop", found["name"]).code == 0


def with_fault(specpanel: Any) -> Any:
    """The command line where the extension that can be made to fail is found."""
    return type(specpanel)({**specpanel.environment, "PYTHONPATH": str(EXTENSIONS)})


def variant(source: Path, folder: Path, change: Any) -> Path:
    """A copy of a checkpoint with its tensors changed."""
    torch = pytest.importorskip("torch")
    from safetensors.torch import load_file, save_file

    folder.mkdir()
    (folder / "config.json").write_bytes((source / "config.json").read_bytes())
    tensors = load_file(source / "model.safetensors")
    change(tensors, torch)
    save_file(tensors, folder / "model.safetensors")
    return folder


def wrong_answer(tensors: Any, torch: Any) -> None:
    """The head proposes another token than the target's for the direction that decides."""
    head = tensors["lm_head.weight"]
    right = tiny.ANSWER - tiny.OFFSET
    head[right, 0], head[right + 4, 0] = 0.0, 1.0


def test_a_to_b_and_back_counts_what_a_start_would(swappable: Swappable) -> None:
    began = swappable.status()
    length, counts, texts = swappable.flight()
    assert length == pytest.approx(4.0, abs=0.01)

    swappable.swap(swappable.b)
    length_b, counts_b, texts_b = swappable.flight()
    assert length_b == 1.0
    assert counts_b[0] > counts[0]
    assert texts_b == texts

    swappable.swap(swappable.a)
    again = swappable.flight()
    assert again == (length, counts, texts)
    assert swappable.status().fingerprint == began.fingerprint


def test_requests_in_flight_are_neither_lost_nor_changed(swappable: Swappable) -> None:
    """Three answers of 400 tokens, four swaps meanwhile; vLLM counts drafts of both drafters."""
    expected = [swappable.ask(f"in flight {number}", 400) for number in range(3)]
    drafts, accepted = swappable.counted()
    with ThreadPoolExecutor(3) as pool:
        asked = [pool.submit(swappable.ask, f"in flight {number}", 400) for number in range(3)]
        turns = (swappable.b, swappable.a, swappable.b, swappable.a)
        pauses = [swappable.swap(folder).paused_s for folder in turns]
        answers = [one.result(timeout=120) for one in asked]
    assert answers == expected
    # Other work on the machine only ever adds: the shortest is the swap's own.
    assert min(pauses) < within(LONGEST_PAUSE_S)
    more_drafts, more_accepted = swappable.counted()
    length = 1 + (more_accepted - accepted) / (more_drafts - drafts)
    assert 1.0 < length < 4.0, "no swap fell into the requests"


@pytest.mark.parametrize(
    "change",
    [
        lambda tensors, torch: tensors.pop("fc.weight"),
        lambda tensors, torch: tensors.update(extra=torch.zeros(2)),
        lambda tensors, torch: tensors["norm.weight"].fill_(float("nan")),
        lambda tensors, torch: tensors.update(d2t=tensors["d2t"] + 1000),
        lambda tensors, torch: tensors.update(
            {"fc.weight": tensors["fc.weight"][:, :-1].contiguous()}
        ),
    ],
    ids=["missing", "unknown", "nan", "mapping", "shape"],
)
def test_a_damaged_checkpoint_leaves_the_old_drafter_drafting(
    swappable: Swappable, tmp_path: Path, change: Any
) -> None:
    before = swappable.status()
    damaged = variant(swappable.b, tmp_path / "damaged", change)
    with pytest.raises(CheckpointRefusedError):
        swappable.swap(damaged)
    assert swappable.status() == before
    assert swappable.ask("still there", 8)


def test_a_failure_within_the_final_copy_is_rolled_back(swappable: Swappable) -> None:
    before, flight = swappable.status(), swappable.flight()

    async def go() -> None:
        async with DrafterSwap(swappable.url) as drafter:
            prepared = await drafter._prepare(swappable.b)
            (answer,) = await drafter._workers.call("specpanel_fail_at_copy", "5")
            assert answer["copies"] > 6
            await drafter._exchange(prepared[0]["digest"])

    with pytest.raises(SwapError, match=r"single memory location.*the old drafter was put back"):
        asyncio.run(go())
    assert swappable.status() == before
    assert swappable.flight() == flight


def test_promotion_takes_the_better_drafter_and_gives_the_worse_one_back(
    specpanel: Any, swappable: Swappable
) -> None:
    def promote(folder: Path) -> tuple[int, dict[str, Any]]:
        done = specpanel.run(
            *("promote", str(folder), "--server", swappable.name, "--json", "-n", "6"),
            *("--max-tokens", "24"),
        )
        assert done.out, done.err
        return done.code, json.loads(done.out)

    before = len(promotions(specpanel))
    code, worse = promote(swappable.b)
    assert (code, worse["result"]) == (1, "rolled back")
    assert swappable.status().folder == str(swappable.a)
    assert worse["gain"]["before"] == pytest.approx(4.0, abs=0.05)
    assert worse["gain"]["candidate"] == 1.0

    swappable.swap(swappable.b)
    code, better = promote(swappable.a)
    assert (code, better["result"]) == (0, "promoted")
    assert better["gain"]["interval"]["low"] > better["margin"]
    assert better["paused_s"] > 0
    assert swappable.status().folder == str(swappable.a)

    results = [line["result"] for line in promotions(specpanel)[before:]]
    assert results == ["on trial", "rolled back", "on trial", "promoted"]


@pytest.mark.long
def test_a_worse_drafter_started_beside_it_goes_again(specpanel: Any, swappable: Swappable) -> None:
    """Promotion by restart, the server of these tests being the old one: it goes on as it was."""
    began = swappable.status()
    done = with_fault(specpanel).run(
        *("promote", str(swappable.b), "--server", swappable.name, "--way", "restart", "--json"),
        *("-n", "6", "--max-tokens", "24"),
        seconds=600,
    )
    assert done.out, done.err
    tried = json.loads(done.out)
    assert (done.code, tried["result"], tried["way"]) == (1, "rolled back", "restart"), done.err
    assert tried["gain"]["candidate"] == 1.0
    assert swappable.status() == began
    left = [json.loads(line)["name"] for line in specpanel.run("ps", "--json").out.splitlines()]
    assert swappable.name in left
    assert not [name for name in left if name.startswith(f"{swappable.name}-")]


def promotions(specpanel: Any) -> list[dict[str, Any]]:
    listed = specpanel.run("promote", "--list", "--json").out
    return [json.loads(line) for line in listed.splitlines()]
