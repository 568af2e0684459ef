"""The built-in prompts, users' files, and the order of sending."""

import json
from collections import Counter
from pathlib import Path

import pytest

from specpanel.core.errors import ConfigurationError
from specpanel.core.traffic.prompts import KINDS, builtin_prompts, choose, read_prompts
from specpanel.core.traffic.records import Prompt

CONTEXT_TOKENS = 1024
ANSWER_TOKENS = 128


def test_the_built_in_set_has_16_prompts_in_each_class() -> None:
    prompts = builtin_prompts()
    assert Counter(prompt.kind for prompt in prompts) == dict.fromkeys(KINDS, 16)
    assert len({prompt.id for prompt in prompts}) == 80
    assert len({prompt.text for prompt in prompts}) == 80


def test_every_built_in_prompt_leaves_room_for_its_answer_in_a_small_context() -> None:
    # A byte is the most that one token of a byte-level vocabulary can cost.
    longest = max(len(prompt.text.encode()) for prompt in builtin_prompts())
    assert longest + ANSWER_TOKENS < CONTEXT_TOKENS


@pytest.mark.parametrize("seed", [0, 1, 77])
def test_any_prefix_of_the_chosen_order_is_balanced(seed: int) -> None:
    order = choose(builtin_prompts(), (), seed)
    assert sorted(p.id for p in order) == sorted(p.id for p in builtin_prompts())
    for length in range(1, len(order) + 1):
        counts = Counter(dict.fromkeys(KINDS, 0)) + Counter(p.kind for p in order[:length])
        held = [counts[kind] for kind in KINDS]
        assert max(held) - min(held) <= 1


def test_a_small_class_is_spread_over_a_large_one() -> None:
    prompts = [Prompt(f"a{n}", "a", "x") for n in range(9)] + [
        Prompt(f"b{n}", "b", "x") for n in range(3)
    ]
    order = "".join(p.kind for p in choose(prompts, (), 5))
    assert all(order[start : start + 4].count("b") == 1 for start in (0, 4, 8))


def test_the_order_depends_on_the_seed_alone() -> None:
    assert choose(builtin_prompts(), (), 3) == choose(builtin_prompts(), (), 3)
    assert choose(builtin_prompts(), (), 3) != choose(builtin_prompts(), (), 4)


def test_only_the_chosen_classes_are_sent() -> None:
    kinds = {p.kind for p in choose(builtin_prompts(), ("code", "maths"), 0)}
    assert kinds == {"code", "maths"}


def test_an_unknown_class_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(ConfigurationError, match=r"'poems'.*chat, code, maths, story, repetition"):
        choose(builtin_prompts(), ("chat", "poems"), 0)


def test_plain_text_is_a_prompt_a_line(tmp_path: Path) -> None:
    file = tmp_path / "mine.txt"
    file.write_bytes('\ufefffirst\r\n\r\n{"second": é}\n'.encode())
    assert [(p.id, p.kind, p.text) for p in read_prompts(file)] == [
        ("mine-001", "own", "first"),
        ("mine-003", "own", '{"second": é}'),
    ]


def test_jsonl_takes_text_prompt_or_messages(tmp_path: Path) -> None:
    file = tmp_path / "mine.data"  # no known name: the brace decides
    lines = [
        {"text": "a", "kind": "chat", "id": 7},
        {"prompt": "b\nc", "system": "be short"},
        {
            "messages": [
                {"role": "system", "content": "s"},
                {"role": "user", "content": [{"type": "text", "text": "u"}]},
                {"role": "assistant", "content": "the reference answer"},
            ]
        },
    ]
    file.write_text("\n".join(map(json.dumps, lines)))
    assert read_prompts(file) == (
        Prompt("7", "chat", "a"),
        Prompt("mine-002", "own", "b\nc", "be short"),
        Prompt("mine-003", "own", "u", "s"),
    )


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"text": "a"', "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[1]", "not a JSON object"),
        ("{}", "needs one of text, prompt, messages; it has none"),
        ('{"text": "a", "prompt": "b"}', "it has text and prompt"),
        ('{"text": " "}', "text must be text, and not empty"),
        ('{"text": 3}', "text must be text"),
        ('{"text": "a", "kind": "x\\ny"}', "kind must be one printable line"),
        ('{"text": "a", "id": "first"}', "the id 'first' is that of line 1"),
        ('{"messages": [{"role": "assistant", "content": "a"}]}', "one user message"),
        ('{"messages": "a"}', "not a list"),
        ('{"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}', "not text"),
    ],
)
def test_a_bad_line_is_named_with_file_line_and_reason(
    tmp_path: Path, line: str, reason: str
) -> None:
    file = tmp_path / "mine.jsonl"
    file.write_text(f'{{"text": "good", "id": "first"}}\n\n{line}\n')
    with pytest.raises(ConfigurationError) as raised:
        read_prompts(file)
    assert f"{file}, line 3: " in raised.value.message
    assert reason in raised.value.message
    assert raised.value.fix


def test_a_file_that_cannot_be_used_is_refused_with_its_name(tmp_path: Path) -> None:
    empty = tmp_path / "empty.txt"
    empty.write_text("\n \n")
    latin = tmp_path / "latin.txt"
    latin.write_bytes(b"good\ncaf\xe9\n")
    for path, reason in (
        (empty, "holds no prompts"),
        (latin, "line 2: not UTF-8"),
        (tmp_path, "Is a directory"),
        (tmp_path / "none.txt", "No such file"),
    ):
        with pytest.raises(ConfigurationError, match=reason) as raised:
            read_prompts(path)
        assert str(path) in raised.value.message
