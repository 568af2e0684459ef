"""Blocks pair what was measured prompt by prompt."""

import pytest

from specpanel.core.errors import ConfigurationError
from specpanel.core.lab.blocks import Tally, blocks_of, warmup_prompts
from specpanel.core.lab.servers import Block
from specpanel.core.traffic.records import Prompt, RequestRecord

PROMPTS = tuple(Prompt(f"p{n}", ("chat", "code")[n % 2], "text") for n in range(7))


def record(prompt: Prompt, error: str | None = None) -> RequestRecord:
    good = error is None
    return RequestRecord(
        *(0, prompt.id, prompt.kind, 0.0, 0.0, 50.0, 100.0 if good else None),
        *(1000.0 if good else None, 9, 11 if good else None, "length", error),
    )


def test_a_prompt_that_failed_on_one_side_counts_on_neither() -> None:
    one, other = Tally(), Tally()
    one.add(0, Block(tuple(record(prompt) for prompt in PROMPTS[:3]), 5.0))
    other.add(0, Block((record(PROMPTS[0]), record(PROMPTS[1], "cut"), record(PROMPTS[2])), 9.0))
    broken = one.broken | other.broken
    assert broken == {(0, "p1")}
    for side in (one, other):
        [whole] = side.whole(broken).values()
        assert (whole.answers, whole.decode_tokens) == (2, 20)
        assert (whole.elapsed_s, whole.output_tokens) == (0.0, 0), "no throughput of a torn block"
        assert "code" not in {kind for kind, groups in side.by_class(broken).items() if groups}
    assert (other.requests, other.failed) == (3, 1)
    assert one.whole()[0].elapsed_s == 5.0


def test_a_group_that_is_sent_again_stays_one_unit() -> None:
    tally = Tally()
    for _ in range(2):
        tally.add(4, Block(tuple(record(prompt) for prompt in PROMPTS[:2]), 3.0))
    [(group, sums)] = tally.whole().items()
    assert (group, sums.answers, sums.elapsed_s) == (4, 4, 6.0)
    assert {kind: groups[4].answers for kind, groups in tally.by_class().items()} == {
        "chat": 2,
        "code": 2,
    }


def test_blocks_are_whole_and_warm_up_takes_the_last_prompts() -> None:
    blocks = blocks_of(PROMPTS, 3)
    assert [[prompt.id for prompt in block] for block in blocks] == [
        ["p0", "p1", "p2"],
        ["p3", "p4", "p5"],
    ]
    assert [prompt.id for prompt in warmup_prompts(blocks, 2)] == ["p5", "p4"]
    with pytest.raises(ConfigurationError, match="do not fill a block"):
        blocks_of(PROMPTS, 8)
