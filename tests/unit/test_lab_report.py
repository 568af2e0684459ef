"""The HTML report stands alone, runs nothing, and its charts show the intervals that were found."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from specpanel.core.lab.report import report
from specpanel.core.lab.store import Experiment
from specpanel.core.lab.svg import WIDTH, Bar, Line, load_chart, ratio_chart

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(1)>&\"'"
VOID = {"meta", "br", "img", "link"}


class Reader(HTMLParser):
    """Collects tags and attributes, and checks that every tag that opens also closes."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text: list[str] = []
        self._open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def contrast(figure: str, value: float, low: float, high: float) -> dict[str, Any]:
    interval = {"estimate": value, "low": low, "high": high}
    return {
        "figure": figure,
        "unit": "ms",
        "is_difference": False,
        "a": 10.0,
        "b": 10 * value,
        "value": value,
        "interval": interval,
        "shown": "better",
        "absent": None,
    }


RESULTS: dict[str, dict[str, Any]] = {
    "compare": {
        "pairings": [
            {
                "a": "plain",
                "b": HOSTILE,
                "differs": [{"setting": "drafter.k", "before": "3", "after": HOSTILE}],
                "overall": [contrast("time per output token", 0.5, 0.4, 0.6)],
                "by_class": {"chat": [contrast("time per output token", 0.9, 0.7, 1.2)]},
            }
        ],
        "arms": [
            {
                "arm": HOSTILE,
                "cost": {
                    "tokens_per_s": 12.0,
                    "device_s_per_1000_tokens": 80.0,
                    "joules_per_1000_tokens": None,
                    "rejected_tokens_per_s": None,
                },
            }
        ],
        "notes": [HOSTILE],
    },
    "breakeven": {
        "drafter": "ngram",
        "points": [
            {
                "concurrency": load,
                "k": k,
                "required_length": 1 + load / 10,
                "required_interval": {
                    "estimate": 1.0,
                    "low": 0.9 + load / 10,
                    "high": 1.2 + load / 10,
                },
            }
            for load in (1, 8)
            for k in (2, 4)
        ],
        "real": [{"concurrency": 8, "length": 1.5}],
        "notes": [],
    },
    "parity": {
        "itself": None,
        "features": [
            {
                "feature": "first time",
                "compared": 10,
                "identical": 9,
                "ties": 1,
                "real": 0,
                "unknown": 0,
            }
        ],
    },
    "nothing of ours": {},
}


def page(kind: str) -> Reader:
    found = Experiment(
        *("id-1", kind, HOSTILE, "done", 0.0, 1.0, 0, {"x": HOSTILE}, HOSTILE, RESULTS[kind]),
        environment={"processor": HOSTILE},
    )
    reader = Reader()
    reader.feed(report(found))
    reader.close()
    return reader


@pytest.mark.parametrize("kind", RESULTS)
def test_a_page_loads_nothing_and_runs_nothing_whatever_its_texts_say(kind: str) -> None:
    read = page(kind)
    assert not {"script", "img", "link", "iframe", "object"} & set(read.tags)
    assert not [name for name, _ in read.attributes if name.startswith("on") or name == "src"]
    assert not [v for name, v in read.attributes if name == "href"]
    policy = dict(read.attributes).get("content", "")
    assert any("default-src 'none'" in (value or "") for _, value in read.attributes), policy
    assert HOSTILE in "".join(read.text), "told as it is, as text"


@pytest.mark.parametrize("kind", ["compare", "breakeven"])
def test_charts_are_there_and_named_for_those_who_do_not_see(kind: str) -> None:
    read = page(kind)
    assert "svg" in read.tags
    assert ("role", "img") in read.attributes
    assert "title" in read.tags


def _places(svg: str, tag: str, *names: str) -> list[tuple[float, ...]]:
    root = ElementTree.fromstring(svg)
    every = root.iter(f"{{http://www.w3.org/2000/svg}}{tag}")
    return [tuple(float(one.attrib[name]) for name in names) for one in every]


def test_a_bar_spans_its_interval_on_both_sides_of_its_value_and_one_is_drawn() -> None:
    svg = ratio_chart("t", [Bar("a", 0.5, 0.4, 0.7), Bar("b", 1.2, None, None)])
    thick = [line for line in re.findall(r"<line [^>]*>", svg) if 'stroke-width="3"' in line]
    assert len(thick) == 1, "no interval, no bar"
    left, right = (float(re.search(f'{name}="([^"]+)"', thick[0])[1]) for name in ("x1", "x2"))  # type: ignore[index]
    (first, _), (second, _) = _places(svg, "circle", "cx", "cy")
    assert left < first < right
    [one] = [line for line in re.findall(r"<line [^>]*>", svg) if 'stroke-width="1.5"' in line]
    assert first < float(re.search('x1="([^"]+)"', one)[1]) < second  # type: ignore[index]
    assert all(0 <= x <= WIDTH for x, _ in _places(svg, "circle", "cx", "cy"))


def test_lines_rise_where_values_rise_and_are_told_apart_without_colour() -> None:
    svg = load_chart(
        "t",
        "u",
        [
            Line("K=2", ((1, 1.0, None, None), (8, 1.5, 1.2, 1.8))),
            Line("K=4", ((1, 1.0, None, None), (8, 2.0, 1.9, 2.1))),
        ],
    )
    places = _places(svg, "circle", "cx", "cy")
    assert places[1][1] < places[0][1]
    assert places[3][1] < places[1][1]
    dashes = re.findall(r'<polyline [^>]*stroke-dasharray="([^"]*)"', svg)
    assert len(set(dashes)) == 2


def test_one_load_alone_is_a_chart_too() -> None:
    svg = load_chart("t", "u", [Line("K=2", ((4, 1.4, 1.2, 1.6),))])
    [(x, y)] = _places(svg, "circle", "cx", "cy")
    assert 0 < x < WIDTH
    assert 0 < y < 340


REAL = json.loads(
    (Path(__file__).parents[1] / "data" / "lab_results.json").read_text(encoding="utf-8")
)


@pytest.mark.parametrize("row", REAL, ids=[row["kind"] for row in REAL])
def test_what_real_experiments_found_makes_a_whole_page(row: dict[str, Any]) -> None:
    found = Experiment(**row)
    text = report(found)
    reader = Reader()
    reader.feed(text)
    reader.close()
    told = "".join(reader.text)
    assert found.conclusion is not None
    assert found.conclusion in told
    assert "None" not in told
    for chart in re.findall(r"<svg.*?</svg>", text, re.DOTALL):
        ElementTree.fromstring(chart)
    # Nothing is fetched: no address anywhere but the name of a namespace.
    assert set(re.findall(r"https?://[^\s\"<]+", text)) <= {"http://www.w3.org/2000/svg"}
    assert "url(" not in text
    assert "@import" not in text
