"""Prompts to train on that come with specpanel: short tasks of five classes, made from parts.

The classes are those of the prompts that specpanel measures with (``core/traffic/prompts.py``); none of
those is among these.
"""

import itertools
import random
from collections.abc import Iterator

from specpanel.core.training.conversations import Conversation, Turn

_THINGS = (
    *("a bicycle", "a violin", "a compass", "a lighthouse", "a teapot", "a kite", "an umbrella"),
    *("a telescope", "a sourdough starter", "a chess board", "a canoe", "a sundial", "a hammock"),
    *("a greenhouse", "a typewriter", "a windmill"),
)
_PLACES = (
    *("a small harbour", "a mountain village", "a busy market", "an old library", "a night train"),
    *(
        "a desert road",
        "an island without cars",
        "a rainy city",
        "a quiet forest",
        "a space station",
    ),
)
_PEOPLE = (
    *(
        "a retired teacher",
        "a young baker",
        "a nervous pilot",
        "a curious child",
        "a patient gardener",
    ),
    *("a lost tourist", "a night nurse", "a clockmaker"),
)
_TOPICS = (
    *("sleep better", "start running", "save money", "learn a language", "keep a diary"),
    *("cook for one", "plan a week", "remember names", "speak in public", "care for a cat"),
    *("grow tomatoes", "pack a suitcase", "read more", "write a letter", "fix a flat tyre"),
    *("take good photographs",),
)
_FUNCTIONS = (
    *("reverses a string", "counts the vowels in a text", "finds the largest number in a list"),
    *("checks whether a number is prime", "removes duplicates from a list", "adds two matrices"),
    *("merges two sorted lists", "converts Celsius to Fahrenheit", "computes a factorial"),
    *(
        "checks whether a word is a palindrome",
        "sums the digits of a number",
        "sorts words by length",
    ),
    *("finds the middle element of a list", "counts words in a text", "returns Fibonacci numbers"),
    *("splits a list into chunks",),
)
_LANGUAGES = ("Python", "JavaScript", "C")


def _chat() -> Iterator[str]:
    for topic in _TOPICS:
        yield f"How can I {topic}? Give me three short tips."
        yield f"What is the most common mistake when people try to {topic}?"
    for thing in _THINGS:
        yield f"Explain in simple words what {thing} is for."
        yield f"I want to buy {thing}. What should I look for?"


def _code() -> Iterator[str]:
    for language, task in itertools.product(_LANGUAGES, _FUNCTIONS):
        yield f"Write a {language} function that {task}."


def _maths() -> Iterator[str]:
    chance = random.Random(7)
    for _ in range(24):
        a, b, c = chance.randint(3, 40), chance.randint(2, 30), chance.randint(2, 9)
        yield f"What is {a} + {b} * {c}? Show each step."
        yield (
            f"A shop sells pencils for {c} cents. How much do {a} pencils cost, and how many can I buy "
            f"for {b * c} cents?"
        )


def _story() -> Iterator[str]:
    for place, person in itertools.product(_PLACES, _PEOPLE):
        if (len(place) + len(person)) % 2:
            yield f"Write the beginning of a short story about {person} in {place}."
    for thing in _THINGS:
        yield f"Write a short poem about {thing}."


def _repetition() -> Iterator[str]:
    chance = random.Random(11)
    for thing in _THINGS:
        yield f"Write the sentence 'I have {thing} at home.' five times."
    for _ in range(16):
        begin, step = chance.randint(1, 30), chance.randint(1, 5)
        yield f"Count from {begin} in steps of {step}, one number a line, ten numbers."
    for topic in _TOPICS:
        yield f"Make a numbered list of five reasons to {topic}."


def builtin_conversations() -> tuple[Conversation, ...]:
    """The whole set, the classes in turn so that any beginning of it holds each in proportion."""
    makers = {
        "chat": _chat,
        "code": _code,
        "maths": _maths,
        "story": _story,
        "repetition": _repetition,
    }
    placed: list[tuple[float, Conversation]] = []
    order = random.Random(3)
    for rank, (kind, make) in enumerate(makers.items()):
        texts = list(make())
        order.shuffle(texts)
        for number, text in enumerate(texts):
            place = (number + (rank + 1) / (len(makers) + 1)) / len(texts)
            name = f"train-{kind}-{number + 1:02d}"
            placed.append((place, Conversation(name, kind, (Turn("user", text),))))
    return tuple(conversation for _, conversation in sorted(placed, key=lambda one: one[0]))
