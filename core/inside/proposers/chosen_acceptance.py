"""A proposer for vLLM's ``custom_class`` that drafts with a chosen acceptance, to price speculation.

It knows the greedy continuations of some prompts, drafts the true next tokens, and spoils one where the
dice say so; vLLM's own verification then accepts and rejects for real. So the cost of a step can be measured
at any K and any acceptance, also where vLLM forces no acceptance by itself (on a CPU). Greedy requests only:
a spoiled token is sure to be rejected at temperature 0 alone.

The control file, named by ``CHOSEN_ACCEPTANCE`` in the environment, is read again whenever it changes, so
that one server sweeps K and rates. Whoever writes it replaces it whole::

    {"table": "/path/table.jsonl",   a line a text: {"prompt": [ids], "completion": [ids]}
     "k": 4,                         at most num_speculative_tokens; 0 drafts nothing
     "rate": 0.8,                    chance that a draft token is accepted, those before it accepted
     "seed": 0}

Luck is a function of (seed, text, place), not of a stream: a run repeats exactly, however its requests are
batched, and another seed draws again. Interface as of vLLM 0.32.0
(``v1/spec_decode/custom_class_proposer.py``).
"""

import json
import logging
import os
from array import array
from typing import Any

CONTROL_VARIABLE = "CHOSEN_ACCEPTANCE"
_MASK = (1 << 64) - 1
_TOKEN_BYTES = 4

# Below "vllm", so that the server prints it.
_log = logging.getLogger("vllm.chosen_acceptance")


def luck(*numbers: int) -> float:
    """A number in [0, 1) that depends on the arguments alone; splitmix64's mixing."""
    state = 0x9E3779B97F4A7C15
    for number in numbers:
        state = ((state ^ (number & _MASK)) * 0xBF58476D1CE4E5B9) & _MASK
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _MASK
        state ^= state >> 31
    return (state >> 11) / (1 << 53)


class Table:
    """Known texts as int32 bytes, found by their first tokens: one look-up and one comparison."""

    def __init__(self, path: str) -> None:
        self._texts: list[bytes] = []
        self._prompt_bytes: list[int] = []
        with open(path, encoding="utf-8") as file:
            for line in file:
                row = json.loads(line)
                self._texts.append(array("i", row["prompt"] + row["completion"]).tobytes())
                self._prompt_bytes.append(len(row["prompt"]) * _TOKEN_BYTES)
        self._head = min(self._prompt_bytes, default=0)
        self._by_head: dict[bytes, list[int]] = {}
        for number, text in enumerate(self._texts):
            self._by_head.setdefault(text[: self._head], []).append(number)

    def __len__(self) -> int:
        return len(self._texts)

    def fits(self, number: int, context: bytes) -> bool:
        """Whether ``context`` is the prompt of this text and the beginning of its answer."""
        text = self._texts[number]
        return len(context) >= self._prompt_bytes[number] and text.startswith(context)

    def find(self, context: bytes) -> int | None:
        """The number of the text that goes on from ``context``."""
        for number in self._by_head.get(context[: self._head], ()):
            if self.fits(number, context):
                return number
        return None

    def tokens(self, number: int, place: int, count: int) -> list[int]:
        """At most ``count`` tokens of the text from ``place`` on."""
        found = array("i")
        start = place * _TOKEN_BYTES
        found.frombytes(self._texts[number][start : start + count * _TOKEN_BYTES])
        return found.tolist()


class ChosenAcceptanceProposer:
    """What vLLM makes once a worker; see the module."""

    def __init__(self, vllm_config: Any) -> None:
        self._most = int(vllm_config.speculative_config.num_speculative_tokens)
        self._longest = int(vllm_config.model_config.max_model_len)
        self._vocabulary = int(vllm_config.model_config.get_vocab_size())
        path = os.environ.get(CONTROL_VARIABLE)
        if not path:
            raise ValueError(f"{CONTROL_VARIABLE} names no control file")
        self._path = path
        self._stamp: tuple[int, int] | None = None
        self._table_path: str | None = None
        self._table: Table | None = None
        self._k, self._rate, self._seed = 0, 0.0, 0
        self._guesses: dict[int, int] = {}  # row of the batch → its text at the last step
        self._refresh()

    def load_model(self, *args: Any, **kwargs: Any) -> None:
        """Nothing to load; the CPU's runner calls it all the same."""

    def propose(
        self,
        sampled_token_ids: Any,
        num_tokens_no_spec: Any,
        token_ids_cpu: Any,
        slot_mappings: Any = None,
        **_more: Any,
    ) -> list[list[int]]:
        """Draft tokens a row; an empty list where the row is in its prefill or its text is not known.

        Args:
            sampled_token_ids: a list a row; empty while the prompt is still being read.
            num_tokens_no_spec: tokens a row, those sampled in this step included.
            token_ids_cpu: int32, [rows, max_model_len].
        """
        self._refresh()
        return [
            self._draft(row, token_ids_cpu[row, : int(num_tokens_no_spec[row])])
            if len(sampled)
            else []
            for row, sampled in enumerate(sampled_token_ids)
        ]

    def _draft(self, row: int, context: Any) -> list[int]:
        place = len(context)
        count = min(self._k, self._longest - place)
        if count <= 0 or self._table is None:
            return []
        seen = context.astype("int32").tobytes()
        number = self._guesses.get(row)
        # Rows move between requests, so a guess is looked at before it is believed.
        if number is None or number >= len(self._table) or not self._table.fits(number, seen):
            number = self._table.find(seen)
            if number is None:
                return []
            self._guesses[row] = number
        tokens = self._table.tokens(number, place, count)
        for ahead in range(len(tokens)):
            if luck(self._seed, number, place, ahead) >= self._rate:
                # What follows the first wrong token is never looked at.
                tokens[ahead] = (tokens[ahead] + 1) % self._vocabulary
                break
        return tokens

    def _refresh(self) -> None:
        status = os.stat(self._path)
        stamp = (status.st_mtime_ns, status.st_ino)
        if stamp == self._stamp:
            return
        with open(self._path, encoding="utf-8") as file:
            control = json.load(file)
        self._stamp = stamp
        table = control.get("table")
        if table != self._table_path:
            self._table_path = table
            self._table = Table(table) if table else None
            self._guesses.clear()
        self._k = min(int(control.get("k", 0)), self._most)
        self._rate = float(control.get("rate", 0.0))
        self._seed = int(control.get("seed", 0))
        _log.info(
            "chosen acceptance: K=%d rate=%.3f seed=%d, %d texts",
            *(self._k, self._rate, self._seed, 0 if self._table is None else len(self._table)),
        )
