"""How long a server pauses while its drafter is exchanged, with two checkpoints of one training run.

    python scripts/bench_swap.py RUN_FOLDER --model TARGET [--port 8000] [--swaps 10] [--json]

The two newest checkpoints take turns in one server, as the evaluate stage serves them: idle, then with
answers on their way. Greedy text must stay the same throughout; what the second counts must be what a server
that was started with it counts. Prompts are those that the run held out.
"""

import argparse
import asyncio
import json
import re
import statistics
import sys
import tempfile
import urllib.request
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import httpx
import tomli_w
from bench_serving import serving

from specpanel.core.training.folder import RunFolder
from specpanel.core.training.measuring import single_questions
from specpanel.core.training.recipe import Recipe
from specpanel.core.training.records import Checkpoint
from specpanel.core.training.swap import DrafterSwap, Swapped

LONGEST_PAUSE_S = 1.0
TOKENS = 96
LONG_TOKENS = 400
IN_FLIGHT = 4
_COUNTERS = ("num_drafts_total", "num_accepted_tokens_total")


@dataclass(frozen=True, slots=True)
class Counted:
    """What a server counted over the held-out prompts, each asked once, one at a time, and its texts."""

    drafts: float
    accepted: float
    texts: tuple[str, ...]

    @property
    def length(self) -> float:
        return 1 + self.accepted / self.drafts


@dataclass(frozen=True, slots=True)
class Pauses:
    """Seconds of several swaps. ``waited``: for the step under way, before the pause."""

    swaps: int
    waited_median_s: float
    waited_longest_s: float
    median_s: float
    longest_s: float
    prepare_median_s: float


@dataclass(frozen=True, slots=True)
class Found:
    """``same_text``: of all prompts, whatever drafted; ``in_flight_same``: of the answers that swaps met."""

    a: str
    b: str
    prompts: int
    idle: Pauses
    busy: Pauses
    length_a: float
    length_a_again: float
    length_b_swapped: float
    length_b_started: float
    same_counts: bool
    same_text: bool
    in_flight_same: bool
    in_flight_answers: int


@contextmanager
def serving_checkpoint(
    recipe: Recipe, model: str, checkpoint: Checkpoint, port: int
) -> Iterator[str]:
    """A server as the evaluate stage starts one; ended afterwards."""
    profile = recipe.drafting_profile(
        model, "eagle3", str(checkpoint.path), checkpoint.draft_tokens
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{profile.name}.toml"
        path.write_text(tomli_w.dumps(profile.model_dump(mode="json", exclude_none=True)))
        with serving(str(path), port) as url:
            yield url


class Asking:
    """Greedy answers of one server."""

    def __init__(self, url: str, http: httpx.AsyncClient, model: str) -> None:
        self._url = url
        self._http = http
        self._model = model

    async def answer(self, text: str, tokens: int, *, whole: bool = False) -> str:
        """``whole``: exactly ``tokens`` tokens."""
        body = {
            "model": self._model,
            "messages": [{"role": "user", "content": text}],
            "temperature": 0.0,
            "max_tokens": tokens,
            "ignore_eos": whole,
        }
        found = (await self._http.post("/v1/chat/completions", json=body)).raise_for_status().json()
        if whole and found["usage"]["completion_tokens"] != tokens:
            raise RuntimeError("an answer came to an early end")
        return str(found["choices"][0]["message"]["content"])

    async def counted(self, prompts: Sequence[str]) -> Counted:
        before = self._counters()
        texts = [await self.answer(prompt, TOKENS) for prompt in prompts]
        after = self._counters()
        return Counted(after[0] - before[0], after[1] - before[1], tuple(texts))

    def _counters(self) -> list[float]:
        with urllib.request.urlopen(f"{self._url}/metrics") as answer:
            text = answer.read().decode()
        return [
            sum(
                float(one)
                for one in re.findall(rf"^vllm:spec_decode_{name}\{{.*\}} (\S+)$", text, re.M)
            )
            for name in _COUNTERS
        ]


@asynccontextmanager
async def asking(url: str) -> AsyncIterator[Asking]:
    async with httpx.AsyncClient(base_url=url, timeout=300, trust_env=False) as http:
        listed = (await http.get("/v1/models")).raise_for_status().json()
        yield Asking(url, http, listed["data"][0]["id"])


def pauses(swaps: Sequence[Swapped]) -> Pauses:
    waited = [one.waited_s for one in swaps]
    took = [one.paused_s for one in swaps]
    return Pauses(
        swaps=len(swaps),
        waited_median_s=statistics.median(waited),
        waited_longest_s=max(waited),
        median_s=statistics.median(took),
        longest_s=max(took),
        prepare_median_s=statistics.median(one.prepare_s for one in swaps),
    )


async def turns(drafter: DrafterSwap, folders: Sequence[Path]) -> list[Swapped]:
    found = []
    for folder in folders:
        found.append(await drafter.swap(folder))
        await drafter.forget()
    return found


async def exchanged(
    url: str, a: Path, b: Path, prompts: Sequence[str], swaps: int
) -> tuple[Counted, Counted, Counted, Pauses, Pauses, list[bool]]:
    """Counts of A, of B swapped in, of A again; pauses idle and busy; whether each answer stayed the same."""
    order = [(b, a)[number % 2] for number in range(2 * (swaps // 2))]
    same: list[bool] = []
    async with asking(url) as server, DrafterSwap(url) as drafter:
        long = [server.answer(text, LONG_TOKENS, whole=True) for text in prompts[:IN_FLIGHT]]
        expected = await asyncio.gather(*long)
        first = await server.counted(prompts)
        idle = await turns(drafter, order)
        busy: list[Swapped] = []
        while len(busy) < len(order):
            asked = [
                asyncio.ensure_future(server.answer(text, LONG_TOKENS, whole=True))
                for text in prompts[:IN_FLIGHT]
            ]
            while len(busy) < len(order) and not any(one.done() for one in asked):
                busy += await turns(drafter, order[len(busy) : len(busy) + 1])
            same += [
                one == other
                for one, other in zip(await asyncio.gather(*asked), expected, strict=True)
            ]
        again = await server.counted(prompts)
        await turns(drafter, (b,))
        second = await server.counted(prompts)
    return first, second, again, pauses(idle), pauses(busy), same


async def counts(url: str, prompts: Sequence[str]) -> Counted:
    async with asking(url) as server:
        return await server.counted(prompts)


def measure(run: RunFolder, model: str, port: int, swaps: int) -> Found:
    recipe = Recipe.model_validate_json(run.recipe.read_text(encoding="utf-8"))
    a, b = sorted(run.kept(), key=lambda one: one.step)[-2:]
    prompts = [one.text for one in single_questions(run.heldout)]
    with serving_checkpoint(recipe, model, a, port) as url:
        first, second, again, idle, busy, same = asyncio.run(
            exchanged(url, a.path, b.path, prompts, swaps)
        )
    with serving_checkpoint(recipe, model, b, port) as url:
        started = asyncio.run(counts(url, prompts))
    return Found(
        a=a.path.name,
        b=b.path.name,
        prompts=len(prompts),
        idle=idle,
        busy=busy,
        length_a=first.length,
        length_a_again=again.length,
        length_b_swapped=second.length,
        length_b_started=started.length,
        same_counts=first == again and second == started,
        same_text=first.texts == second.texts == again.texts == started.texts,
        in_flight_same=all(same),
        in_flight_answers=len(same),
    )


def sentences(found: Found) -> Iterator[str]:
    for word, one in (("idle", found.idle), (f"{IN_FLIGHT} answers on their way", found.busy)):
        yield (
            f"{word}: {one.swaps} swaps, paused {one.median_s:.2f} s (median), {one.longest_s:.2f} s "
            f"(longest; asked: at most {LONGEST_PAUSE_S:g}), after {one.prepare_median_s:.2f} s of checks "
            f"and {one.waited_median_s:.2f} s (median), {one.waited_longest_s:.2f} s (longest) for the "
            "step under way"
        )
    yield (
        f"acceptance length of {found.a}: {found.length_a:.4f}, of {found.b} swapped in: "
        f"{found.length_b_swapped:.4f}, started with it: {found.length_b_started:.4f}, of {found.a} "
        f"again: {found.length_a_again:.4f}; counts {'the same' if found.same_counts else 'DIFFER'}"
    )
    yield (
        f"text of {found.prompts} prompts: {'the same' if found.same_text else 'DIFFERS'}; of "
        f"{found.in_flight_answers} answers on their way: "
        f"{'the same' if found.in_flight_same else 'DIFFERS'}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("run", type=Path, help="folder of a training run with two checkpoints")
    parser.add_argument("--model", required=True, help="folder of its target")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--swaps", type=int, default=10)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    found = measure(RunFolder(given.run.absolute()), given.model, given.port, given.swaps)
    text = json.dumps(asdict(found)) if given.json else "\n".join(sentences(found))
    sys.stdout.write(text + "\n")


if __name__ == "__main__":
    main()
