"""One row a setting, generated from the settings models. Pure.

A row is what a form needs: title, help, kind, choices, bounds, flag, default and value. Nothing is declared
here: all of it is read from the JSON schema of the models in ``profile`` and ``drafters``, so the command
line, the file, the form and the help say the same.

A *table* is a profile as nested dictionaries, like its TOML file: ``{"target": {"model": …}, …}``. It may
hold texts that are no valid values yet; ``validated`` tells which.
"""

import copy
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal

from pydantic import BaseModel, ValidationError

from specpanel.core.settings.drafters import DRAFTERS, METHODS, NoDrafter, canonical
from specpanel.core.settings.mla import Mla, Need, Subject
from specpanel.core.settings.profile import Engine, Profile, Target, Traffic

Kind = Literal["text", "integer", "number", "choice", "toggle", "words", "variables"]
Source = Literal["default", "profile", "edited"]
Table = dict[str, Any]

SECTIONS: tuple[str, ...] = ("target", "drafter", "mla", "engine", "traffic")
_MODELS: Mapping[str, type[BaseModel]] = {
    "target": Target,
    "mla": Mla,
    "engine": Engine,
    "traffic": Traffic,
}
_METHOD_REFERENCE = "config/speculative.py:399"
_UNITS = {"_per_s": " (1/s)", "_s": " (s)", "_gib": " (GiB)"}
_KINDS: Mapping[str, Kind] = {
    "string": "text",
    "integer": "integer",
    "number": "number",
    "boolean": "toggle",
    "array": "words",
    "object": "variables",
}


@dataclass(frozen=True, slots=True)
class Row:
    """One setting. ``value`` is what the table says, ``default`` where it says nothing.

    ``choices`` are the texts that a choice can be. ``bounds`` is in words, empty where there are none.
    ``flag`` is vLLM's own, None where the setting is not one of its flags; ``reference`` is where vLLM
    declares it, as file and line below its package. ``optional``: may be absent.
    """

    section: str
    name: str
    title: str
    help: str
    kind: Kind
    choices: tuple[str, ...]
    bounds: str
    default: Any
    flag: str | None
    reference: str | None
    optional: bool
    required: bool
    value: Any
    source: Source
    owner: type[BaseModel]

    @property
    def dotted(self) -> str:
        return f"{self.section}.{self.name}"

    def matches(self, words: str) -> bool:
        """Whether every word is in the name, the title, the flag or the help; case does not count."""
        text = f"{self.dotted} {self.title} {self.flag or ''} {self.help}".lower()
        return all(word in text for word in words.lower().split())


@dataclass(frozen=True, slots=True)
class Parsed:
    """``value`` for the table; the text itself where ``error`` says in a few words what is wrong with it.

    A ``value`` of None takes the setting out of the table: its default is what counts then.
    """

    value: Any
    error: str | None = None


def rows(
    table: Mapping[str, Any],
    saved: Mapping[str, Any] | None = None,
    subject: Subject | None = None,
) -> tuple[Row, ...]:
    """Every setting of a profile, the drafter's by its method, in the order of ``SECTIONS``.

    Args:
        saved: the table before it was edited; what differs from it has ``edited`` as its source.
        subject: the model and platform that it is about. Settings that mean nothing there are left out,
            unless they are set. Everything where absent.
    """
    before = table if saved is None else saved
    about = subject or Subject()
    return tuple(
        _row(section, name, _offered(field, name, about), table, before)
        for section in SECTIONS
        for name, field in _fields(_owner(section, table)).items()
        if about.allows(field.needs) or _value(table, section, name) is not None
    )


def _offered(field: "_Field", name: str, subject: Subject) -> "_Field":
    """The field, with the backends to choose from where model and platform tell them."""
    choices = subject.backends() if name == "attention_backend" and field.owner is Mla else ()
    return replace(field, kind="choice", choices=choices) if choices else field


def parse(row: Row, text: str) -> Parsed:
    """What ``text`` means as a value of ``row``. An empty text is no value: the default counts."""
    if not text.strip():
        return Parsed(None, "is needed" if row.required else None)
    try:
        value: Any = shlex.split(text) if row.kind in ("words", "variables") else text
    except ValueError as error:
        return Parsed(text, str(error).lower())
    if row.kind == "variables":
        pairs = [word.partition("=") for word in value]
        if any(not equals for _, equals, _ in pairs):
            return Parsed(text, "write NAME=value, with blanks between")
        value = {name: content for name, _, content in pairs}
    try:
        row.owner.model_validate({row.name: value})
    except ValidationError as error:
        for problem in error.errors(include_url=False):
            if problem["loc"][:1] == (row.name,):
                return Parsed(text, reason(problem))
    return Parsed(_plain(row, value))


def text_of(row: Row, value: Any) -> str:
    """``value`` as it is typed: ``parse`` gives the same value back. Empty for None."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return shlex.join(f"{name}={content}" for name, content in value.items())
    if isinstance(value, list | tuple):
        return shlex.join(str(word) for word in value)
    return str(value)


def validated(table: Mapping[str, Any]) -> Profile | dict[str, str]:
    """The profile, or what is wrong with each setting, by dotted name; the first thing for each."""
    try:
        return Profile.model_validate(_without_none(table))
    except ValidationError as error:
        wrong: dict[str, str] = {}
        for problem in error.errors(include_url=False):
            wrong.setdefault(_dotted(problem, table), reason(problem))
        return wrong


def with_value(table: Mapping[str, Any], dotted: str, value: Any) -> Table:
    """A table with one value changed, or taken out where it is None; ``table`` stays as it is.

    Another drafter method drops the settings of the drafter before: they belong to that one.
    """
    changed = copy.deepcopy(dict(table))
    section, _, name = dotted.partition(".")
    place = changed.setdefault(section, {})
    if dotted == "drafter.method" and place.get("method") != value:
        place.clear()
    if value is None:
        place.pop(name, None)
    else:
        place[name] = value
    return changed


def table_of(profile: Profile) -> Table:
    """What a profile's file says: everything that was set, defaults left out."""
    table = profile.model_dump(mode="json", exclude_unset=True)
    table.setdefault("drafter", {}).setdefault("method", profile.drafter.method)
    return table


def reason(problem: Any) -> str:
    """What pydantic found, in the few words that fit beside a value."""
    kind, context = problem["type"], problem.get("ctx", {})
    plain = {
        "int_parsing": "not a whole number",
        "int_type": "not a whole number",
        "int_from_float": "not a whole number",
        "float_parsing": "not a number",
        "float_type": "not a number",
        "finite_number": "not a finite number",
        "bool_parsing": "yes or no",
        "missing": "is needed",
        "string_too_short": "is needed",
        "string_type": "not a text",
        "extra_forbidden": "there is no such setting",
        "union_tag_invalid": "no such drafter",
    }
    bounds = {
        "greater_than": ("above", "gt"),
        "greater_than_equal": ("at least", "ge"),
        "less_than": ("below", "lt"),
        "less_than_equal": ("at most", "le"),
    }
    if kind in plain:
        return plain[kind]
    if kind in bounds:
        words, name = bounds[kind]
        return f"must be {words} {context[name]:g}"
    if kind == "literal_error":
        return f"not one of {context['expected']}"
    return str(problem["msg"]).removeprefix("Value error, ").replace("Input should", "should")


# -- from the models -------------------------------------------------------------------------


def _owner(section: str, table: Mapping[str, Any]) -> type[BaseModel]:
    if section != "drafter":
        return _MODELS[section]
    drafter = table.get("drafter")
    method = drafter.get("method") if isinstance(drafter, Mapping) else None
    return DRAFTERS.get(canonical(str(method)), NoDrafter)


@dataclass(frozen=True, slots=True)
class _Field:
    """What a model declares of one field."""

    title: str
    help: str
    kind: Kind
    choices: tuple[str, ...]
    bounds: str
    default: Any
    flag: str | None
    reference: str | None
    optional: bool
    required: bool
    owner: type[BaseModel]
    needs: Need | None = None


@cache
def _fields(owner: type[BaseModel]) -> dict[str, _Field]:
    schema = owner.model_json_schema()
    needed = schema.get("required", ())
    fields = {
        name: _field(owner, name, declared, required=name in needed)
        for name, declared in schema["properties"].items()
    }
    if "method" in fields:
        doc = " ".join((owner.__doc__ or "").split())
        fields["method"] = _Field(
            title="method",
            help=f"How tokens are drafted. {doc}",
            kind="choice",
            choices=METHODS,
            bounds="",
            default="none",
            flag="--speculative-config",
            reference=_METHOD_REFERENCE,
            optional=False,
            required=False,
            owner=owner,
        )
    return fields


def _field(
    owner: type[BaseModel], name: str, declared: Mapping[str, Any], *, required: bool
) -> _Field:
    branches = declared.get("anyOf", ())
    inner: Mapping[str, Any] = next(
        (branch for branch in branches if branch.get("type") != "null"), {}
    )
    merged = {**declared, **inner}
    kind: Kind = "choice" if "enum" in merged else _KINDS[merged["type"]]
    empty: Any = {} if kind == "variables" else None
    return _Field(
        title=_title(name, str(merged.get("title", ""))),
        help=str(merged.get("description", "")),
        kind=kind,
        choices=tuple(map(str, merged.get("enum", ()))),
        bounds=_bounds(merged, whole=kind == "integer"),
        default=merged.get("default", empty),
        flag=merged.get("flag"),
        reference=merged.get("reference"),
        optional=any(branch.get("type") == "null" for branch in branches),
        required=required,
        owner=owner,
        needs=merged.get("needs"),
    )


def _title(name: str, declared: str) -> str:
    """The declared title; pydantic's own guess is the name in capitals, which says no more than it."""
    if declared and declared != name.replace("_", " ").title():
        return declared
    for suffix, unit in _UNITS.items():
        if name.endswith(suffix):
            return name.removesuffix(suffix).replace("_", " ") + unit
    return name.replace("_", " ")


def _bounds(declared: Mapping[str, Any], *, whole: bool) -> str:
    low, high = declared.get("minimum"), declared.get("maximum")
    above = declared.get("exclusiveMinimum")
    if whole and above is not None:
        low, above = above + 1, None
    if low is not None and high is not None:
        return f"{low:g} … {high:g}"
    words = [
        f"{word} {bound:g}"
        for word, bound in (("above", above), ("at least", low), ("at most", high))
        if bound is not None
    ]
    return ", ".join(words)


# -- from a table ----------------------------------------------------------------------------


def _row(
    section: str, name: str, field: _Field, table: Mapping[str, Any], before: Mapping[str, Any]
) -> Row:
    value, old = _value(table, section, name), _value(before, section, name)
    same_drafter = section != "drafter" or _owner(section, before) is field.owner
    source: Source = "default" if value is None else "profile"
    if value != old and (value is not None or same_drafter):
        source = "edited"
    return Row(
        section=section,
        name=name,
        title=field.title,
        help=field.help,
        kind=field.kind,
        choices=field.choices,
        bounds=field.bounds,
        default=field.default,
        flag=field.flag,
        reference=field.reference,
        optional=field.optional,
        required=field.required,
        value=value,
        source=source,
        owner=field.owner,
    )


def _value(table: Mapping[str, Any], section: str, name: str) -> Any:
    place = table.get(section)
    return place.get(name) if isinstance(place, Mapping) else None


def _plain(row: Row, value: Any) -> Any:
    """The value as TOML has it: a number for a number."""
    if row.kind == "integer":
        return int(float(value)) if "." in str(value) else int(value)
    if row.kind == "number":
        return float(value)
    if row.kind == "toggle":
        return str(value).strip().lower() in ("yes", "y", "true", "on", "t", "1")
    return value.strip() if row.kind == "text" else value


def _without_none(table: Mapping[str, Any]) -> Table:
    return {
        key: {name: item for name, item in value.items() if item is not None}
        if key in SECTIONS and isinstance(value, Mapping)
        else value
        for key, value in table.items()
        if value is not None
    }


def _dotted(problem: Any, table: Mapping[str, Any]) -> str:
    """The setting that a problem belongs to; of a rule over several, the first one it names."""
    parts = [str(part) for part in problem["loc"]]
    if parts[:1] == ["drafter"] and len(parts) > 1 and parts[1] in METHODS:
        del parts[1]
    if len(parts) == 1 and parts[0] in SECTIONS:
        names = list(_fields(_owner(parts[0], table)))
        named = re.findall(r"\w+", str(problem["msg"]))
        fallback = "method" if "method" in names else names[0]
        parts.append(next((word for word in named if word in names), fallback))
    return ".".join(parts[:2])
