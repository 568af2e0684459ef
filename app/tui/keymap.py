"""The keys as they are bound: the table of ``keys.py`` with the user's own choices over it."""

import os
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from textual.keys import KEY_NAME_REPLACEMENTS, Keys

from specpanel.app.tui.keys import KEYS, Key, Scope
from specpanel.core.ordinary import read_ordinary

SETTINGS_FILE = "config.toml"
TABLE = "keys"

_PAIRS = {
    "logs.next": ("logs.next", "logs.previous", "Error"),
    "launch.next": ("launch.previous", "launch.next", "Profile"),
    "live.longer": ("live.longer", "live.shorter", "Window"),
    "live.next": ("live.previous", "live.next", "Chart"),
    "train.next": ("train.previous", "train.next", "Pane"),
    "mla.longer": ("mla.shorter", "mla.longer", "Prompt"),
    "zoom.earlier": ("zoom.earlier", "zoom.later", "Values"),
}
"""Keys that share a place in the key line: both in the order shown, and the label."""

_ACTIVE_TOGETHER: tuple[tuple[Scope, ...], ...] = (
    ("launch", "panel"),
    ("live", "zoom", "panel"),
    ("replay", "live", "zoom", "panel"),
    ("logs", "panel"),
    ("sessions", "panel"),
    ("train", "panel"),
    ("trainlog", "logs", "panel"),
    ("trainstart",),
    ("lab", "panel"),
    ("labnew",),
    ("mla", "panel"),
    ("switcher",),
    ("quit",),
    ("stop",),
    ("stopping",),
    ("mark",),
    ("confirm",),
    ("error",),
    ("help",),
)
_LIMIT_BYTES = 1 << 20
_MODIFIERS = frozenset({"ctrl", "shift", "alt", "super"})
_NAMED = frozenset(key.value for key in Keys)
_SHORT = {"escape": "esc", "pageup": "pgup", "pagedown": "pgdn", "delete": "del"}


@dataclass(frozen=True, slots=True)
class Keymap:
    """``chosen`` has the user's keys by the id of what they do, in Textual's names, comma separated."""

    chosen: Mapping[str, str] = field(default_factory=dict)

    def keys_of(self, *scopes: Scope) -> tuple[Key, ...]:
        return tuple(self._as_bound(key) for scope in scopes for key in KEYS if key.scope == scope)

    def shown(self, id: str) -> str:
        """The key of an action as it is written on the screen."""
        return next(self._as_bound(key).shown for key in KEYS if key.id == id)

    def line_entries(self, *scopes: Scope) -> list[tuple[str, str]]:
        """What the key line shows, as key and label, most used first and help and quit last."""
        entries = []
        for key in self.keys_of(*scopes):
            if key.id in _PAIRS:
                first, second, label = _PAIRS[key.id]
                entries.append((f"{self.shown(first)} {self.shown(second)}", label))
            elif key.label:
                entries.append((key.shown, key.label))
        return entries

    def _as_bound(self, key: Key) -> Key:
        keys = self.chosen.get(key.id)
        if keys is None:
            return key
        return replace(key, keys=keys, shown=shown_key(keys.partition(",")[0]))


def shown_key(key: str) -> str:
    """A key of Textual's as it is written on the screen: ``^r``, ``esc``, ``[``."""
    modifiers, _, name = key.rpartition("+")
    shown = _SHORT.get(name) or (_CHARACTERS.get(name, name) if name != "space" else name)
    if modifiers == "ctrl":
        return f"^{shown}"
    return f"{modifiers}+{shown}" if modifiers else shown


def settings_path() -> Path:
    """``specpanel/config.toml`` in the XDG configuration folder."""
    root = os.environ.get("XDG_CONFIG_HOME", "")
    config = Path(root) if root.startswith("/") else Path.home() / ".config"
    return config / "specpanel" / SETTINGS_FILE


def read_keymap(path: Path | None = None) -> tuple[Keymap, list[str]]:
    """The keymap of a settings file, and what is wrong in it: such entries are left out, each named.

    A file that is missing is an empty one.
    """
    where = settings_path() if path is None else path
    try:
        content = read_ordinary(where, _LIMIT_BYTES, pipes=False)
    except FileNotFoundError:
        return Keymap(), []
    except OSError as error:
        return Keymap(), [f"{where} cannot be read: {error.strerror or error}"]
    import tomllib  # most have no such file, and the first picture does not wait for it

    try:
        found = tomllib.loads(content.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        return Keymap(), [f"{where} is no TOML: {error}"]
    table = found.get(TABLE, {})
    if not isinstance(table, dict):
        return Keymap(), [f"{where}: [{TABLE}] is no table"]
    keymap, complaints = keymap_of(table)
    return keymap, [f"{where}, [{TABLE}] {complaint}" for complaint in complaints]


def keymap_of(table: Mapping[str, object]) -> tuple[Keymap, list[str]]:
    """The keymap that a table of ids and keys describes, and a complaint for each entry left out. Pure."""
    wanted: dict[str, str] = {}
    complaints: list[str] = []
    ids = {key.id for key in KEYS}
    for id, keys in _flat(table):
        if id not in ids:
            complaints.append(
                f"{id}: there is no such action; ? lists the keys, and README the ids"
            )
            continue
        found = _normal(keys)
        if found is None:
            complaints.append(f'{id} = {keys!r}: write keys like "f", "ctrl+f" or "f5, space"')
        else:
            wanted[id] = found
    for id, keys in list(wanted.items()):
        clash = _clash(id, keys, wanted)
        if clash is not None:
            key, other = clash
            complaints.append(f'{id} = "{keys}": {shown_key(key)} already means {other} there')
            del wanted[id]
    return Keymap(wanted), complaints


def _flat(table: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    """``[keys.live] freeze = "f"`` is ``"live.freeze" = "f"``."""
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _normal(keys: object) -> str | None:
    """The keys in Textual's names, comma separated; None where one of them is no key."""
    if not isinstance(keys, str) or not keys.strip():
        return None
    parts = [","] if keys.strip() == "," else [part.strip() for part in keys.split(",")]
    found = [_normal_key(part) for part in parts]
    return None if None in found else ",".join(key for key in found if key is not None)


def _normal_key(key: str) -> str | None:
    if len(key) == 1:
        return _character_name(key)
    *modifiers, name = key.lower().split("+")
    if not set(modifiers) <= _MODIFIERS:
        return None
    if len(name) == 1:
        named = _character_name(name)
        return None if named is None else "+".join([*modifiers, named])
    return "+".join([*modifiers, name]) if name in _NAMED or name in _CHARACTERS else None


def _character_name(character: str) -> str | None:
    """How Textual calls the key of a character."""
    if character.isalnum():
        return character
    name = unicodedata.name(character, "").lower().replace("-", "_").replace(" ", "_")
    return KEY_NAME_REPLACEMENTS.get(name, name) or None


_CHARACTERS = {
    name: chr(code) for code in range(32, 127) if (name := _character_name(chr(code))) is not None
}


def _clash(id: str, keys: str, wanted: Mapping[str, str]) -> tuple[str, str] | None:
    """The key of an action that means another one where both work, and that one's id."""
    taken = {key.id: wanted.get(key.id, key.keys).split(",") for key in KEYS}
    scope = id.partition(".")[0]
    for group in _ACTIVE_TOGETHER:
        if scope not in group:
            continue
        for other, others in taken.items():
            if other == id or other.partition(".")[0] not in group:
                continue
            for key in keys.split(","):
                if key in others:
                    return key, other
    return None
