"""An experiment as a text for other programs and people: JSON, CSV, Markdown, HTML. Reads the store."""

import csv
import io
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from specpanel.core.errors import ConfigurationError, RecordingError
from specpanel.core.lab.report import report
from specpanel.core.lab.store import Experiment, Store
from specpanel.core.monitor.recording import SCHEMA_VERSION
from specpanel.core.private import private_opener
from specpanel.core.settings.paths import data_folder


def exported(store: Store, found: Experiment, form: str) -> str:
    """The experiment in one of ``FORMATS``, with a line end at its end.

    Raises:
        ConfigurationError: there is no such format.
    """
    write = FORMATS.get(form)
    if write is None:
        raise ConfigurationError(
            f"there is no format {form!r}", f"Choose one of {', '.join(FORMATS)}."
        )
    return write(store, found)


def _json(store: Store, found: Experiment) -> str:
    table = {
        "schema_version": SCHEMA_VERSION,
        **asdict(found),
        "runs": [asdict(run) for run in store.runs(found.id)],
        "measurements": list(store.measurements(found.id)),
    }
    return json.dumps(table, ensure_ascii=False, indent=2) + "\n"


def _csv(store: Store, found: Experiment) -> str:
    """A row a request. Lists are JSON in their cell."""
    rows = list(store.measurements(found.id))
    names = list(dict.fromkeys(name for row in rows for name in row))
    out = io.StringIO()
    writer = csv.DictWriter(out, names, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({name: _cell(value) for name, value in row.items()})
    return out.getvalue()


def _cell(value: Any) -> Any:
    if isinstance(value, list):
        return json.dumps(value)
    # A sheet would run a text that begins like a formula.
    return f"'{value}" if isinstance(value, str) and value[:1] in "=+-@" and value else value


def _markdown(store: Store, found: Experiment) -> str:
    return "\n".join(_markdown_lines(store, found)) + "\n"


def _markdown_lines(store: Store, found: Experiment) -> Iterator[str]:
    yield f"# {_plain(found.id)}"
    yield ""
    yield f"{_plain(found.title)}: **{_plain(found.conclusion or found.state)}**"
    yield ""
    yield from _table(("environment", ""), found.environment.items())
    result = found.result or {}
    for pairing in result.get("pairings", ()):
        yield f"## {_plain(pairing['b'])} against {_plain(pairing['a'])}"
        yield ""
        differing = [
            (change["setting"], f"{change['before']} → {change['after']}")
            for change in pairing["differs"]
        ]
        yield from _table(("differs", ""), differing)
        figures = [("all", each) for each in pairing["overall"]]
        figures += [(kind, each) for kind, found_ in pairing["by_class"].items() for each in found_]
        yield from _table(
            ("prompts", "figure", "A", "B", "B against A", "95 % interval", "shown"),
            (_figure_cells(kind, each) for kind, each in figures),
        )
    points = result.get("points", ())
    if points:
        names = tuple(points[0])
        yield from _table(names, ([point.get(name) for name in names] for point in points))


def _figure_cells(kind: str, each: dict[str, Any]) -> tuple[object, ...]:
    interval = each["interval"]
    between = "n/a" if interval is None else f"{interval['low']:.3f} … {interval['high']:.3f}"
    name = f"{each['figure']} {each['unit']}".strip()
    return kind, name, each["a"], each["b"], each["value"], between, each["shown"]


def _table(head: tuple[str, ...], rows: Any) -> Iterator[str]:
    yield "| " + " | ".join(map(_plain, head)) + " |"
    yield "|" + "---|" * len(head)
    for row in rows:
        yield "| " + " | ".join(map(_value, row)) + " |"
    yield ""


def _value(value: object) -> str:
    if value is None:
        return "n/a"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, dict):
        return _plain(" … ".join(f"{each:.3g}" for each in value.values() if each is not None))
    return _plain(str(value))


def _plain(text: str) -> str:
    """A text that means nothing to Markdown, on one line."""
    shown = " ".join(text.split())
    return "".join(f"\\{sign}" if sign in "\\`*_[]<>|#" else sign for sign in shown)


def _html(store: Store, found: Experiment) -> str:
    return _page(found)


FORMATS: dict[str, Callable[[Store, Experiment], str]] = {
    "json": _json,
    "csv": _csv,
    "markdown": _markdown,
    "html": _html,
}


def _page(found: Experiment) -> str:
    try:
        return report(found)
    except (KeyError, TypeError, IndexError, ValueError):
        raise RecordingError(
            f"what {found.id} found is not as this version writes it, so there is no page of it",
            "specpanel results export --format json gives all of it.",
        ) from None


def reports_folder() -> Path:
    """Pages that a panel wrote."""
    return data_folder() / "reports"


def write_report(found: Experiment) -> Path:
    """The experiment's page as a file in the folder of reports; written again where it is there.

    Raises:
        RecordingError: it cannot be written.
    """
    path, page = reports_folder() / f"{found.id}.html", _page(found)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "w", encoding="utf-8", opener=private_opener) as file:
            file.write(page)
    except OSError as error:
        raise RecordingError(f"{path} cannot be written: {error.strerror or error}") from None
    return path
