"""Every key of the app, declared once: it gives the binding, the key line, the help and the palette."""

from dataclasses import dataclass
from typing import Literal

from textual.binding import Binding

Scope = Literal[
    "launch",
    "live",
    "zoom",
    "sessions",
    "replay",
    "devices",
    "logs",
    "train",
    "trainlog",
    "trainstart",
    "lab",
    "labnew",
    "mla",
    "panel",
    "switcher",
    "quit",
    "stop",
    "stopping",
    "mark",
    "confirm",
    "error",
    "help",
    "why",
]

SCOPE_TITLES: dict[Scope, str] = {
    "launch": "Launch",
    "live": "Live",
    "zoom": "Live, one chart zoomed",
    "sessions": "Sessions",
    "replay": "A past run, replayed",
    "devices": "Devices",
    "logs": "Logs",
    "train": "Train",
    "trainlog": "The log of a training",
    "trainstart": "Before a training is begun",
    "lab": "Lab",
    "labnew": "A new experiment",
    "mla": "MLA",
    "panel": "Everywhere",
    "switcher": "The switcher",
    "quit": "Leaving while something runs",
    "stop": "Stopping a server",
    "stopping": "While things end",
    "mark": "Marking a moment",
    "confirm": "Before something is stopped or deleted",
    "error": "Something went wrong",
    "help": "These keys",
    "why": "Why",
}


@dataclass(frozen=True, slots=True)
class Key:
    """One action. ``id`` is what a user's keymap names; ``keys`` are Textual's names, comma separated.

    ``label`` is its word in the key line at the bottom, empty for a key that is not there.
    """

    id: str
    keys: str
    shown: str
    action: str
    label: str
    help: str
    scope: Scope


# id, keys, as shown, action, label, help
_LAUNCH = (
    ("enter", "enter", "enter", "enter", "Edit", "Edit the setting, or fold its section"),
    ("start", "ctrl+r", "^r", "start", "Start", "Start what the form says, or go to what is wrong"),
    ("toggle", "space", "space", "switch", "", "Turn a setting on or off"),
    ("next", "right_square_bracket", "]", "profile(1)", "", "The next profile"),
    ("previous", "left_square_bracket", "[", "profile(-1)", "", "The profile before"),
    ("filter", "slash", "/", "filter", "Filter", "Only settings whose name, flag or help matches"),
    ("write", "w,ctrl+s", "w", "write(False)", "Write", "Write the profile into a file"),
    ("clone", "c", "c", "write(True)", "Clone", "Write it under another name"),
    ("fix", "f", "f", "fix", "Fix", "Set what ends a finding of preflight, here or the first"),
    ("force", "F", "F", "force", "", "Start in spite of preflight's errors; recorded"),
    ("undo", "u", "u", "undo", "Undo", "Take the last edit back"),
    ("copy", "y", "y", "copy", "Copy", "Copy the command to the clipboard"),
    ("side", "v", "v", "side", "Side", "Show or hide the command and preflight"),
    ("reset", "delete,backspace", "del", "reset", "", "Back to the default"),
    ("fold", "a", "a", "fold_all", "", "Show all settings, or only those that are set"),
    ("down", "down,j", "down", "move(1)", "", "The next setting"),
    ("up", "up,k", "up", "move(-1)", "", "The setting before"),
    ("page_down", "pagedown", "pgdn", "move(10)", "", "Ten settings on"),
    ("page_up", "pageup", "pgup", "move(-10)", "", "Ten settings back"),
    ("pane", "tab,shift+tab", "tab", "pane", "", "From the form to the profiles, and back"),
    ("cancel", "escape", "esc", "cancel", "", "Leave the editor or the filter"),
)
_LIVE = (
    ("freeze", "space", "space", "freeze", "Freeze", "Freeze the picture; sampling goes on"),
    ("longer", "plus,equals_sign", "+", "window(1)", "", "A longer time window"),
    ("shorter", "minus", "-", "window(-1)", "", "A shorter time window"),
    ("next", "right_square_bracket", "]", "select(1)", "", "The next chart"),
    ("previous", "left_square_bracket", "[", "select(-1)", "", "The chart before"),
    ("zoom", "z", "z", "zoom", "Zoom", "Give the chosen chart the whole screen, and back"),
    (
        "conditional",
        "c",
        "c",
        "conditional",
        "Conditional",
        "Positions given that the one before was accepted, and back",
    ),
    ("heat", "h", "h", "heat", "Heat map", "Acceptance by position over time, and back"),
    (
        "histogram",
        "H",
        "H",
        "histogram",
        "",
        "How latencies are spread in the last minute, and back",
    ),
    ("devices", "d", "d", "devices", "Devices", "All that is known of the devices, processes too"),
    ("devices_down", "pagedown", "pgdn", "device_rows(3)", "", "Further down the list of devices"),
    ("devices_up", "pageup", "pgup", "device_rows(-3)", "", "Back up the list of devices"),
    ("why", "w", "w", "why", "Why", "What is wrong with acceptance, and what vLLM really chose"),
    ("baseline", "b", "b", "baseline", "Baseline", "Measure whether speculation pays here; asks"),
)
_ZOOM = (
    ("earlier", "left", "left", "cursor(-1)", "", "Read the values earlier"),
    ("later", "right", "right", "cursor(1)", "", "Read the values later"),
    ("leave", "escape", "esc", "leave_zoom", "All charts", "Show all charts again"),
)
_SESSIONS = (
    ("open", "enter", "enter", "open", "Open", "Adopt the server, or replay the run in Live"),
    ("mark", "space", "space", "mark", "Mark", "Mark a run to compare: A, then B"),
    ("compare", "c", "c", "compare", "Compare", "The two marked runs side by side"),
    ("stop", "x", "x", "stop", "Stop", "Stop the running server; asks"),
    ("delete", "d,delete", "d", "delete", "Delete", "Delete the recording; asks"),
    ("filter", "slash", "/", "filter", "Filter", "Only sessions whose names match every word"),
    ("reread", "r", "r", "reread", "Reread", "Read state files and recordings again"),
    ("down", "down,j", "down", "move(1)", "", "The next session"),
    ("up", "up,k", "up", "move(-1)", "", "The session before"),
    ("page_down", "pagedown", "pgdn", "move(10)", "", "Ten sessions on"),
    ("page_up", "pageup", "pgup", "move(-10)", "", "Ten sessions back"),
    ("first", "home,g", "home", "move(-999999)", "", "The first session"),
    ("last", "end,G", "end", "move(999999)", "", "The last session"),
    ("close", "escape", "esc", "close", "", "Drop the filter, the comparison, the marks"),
)
_REPLAY = (
    ("back", "escape,backspace", "esc", "back", "Back", "Back to the sessions"),
    ("play", "p", "p", "play(1)", "Play", "Play it from its start; again: faster"),
    ("whole", "o", "o", "play(0)", "Whole", "Show all of it at once"),
)
_DEVICES = (
    ("back", "escape,d,backspace", "esc", "back", "Back", "Back to Live"),
    ("down", "down,j", "down", "move(1)", "", "A row down"),
    ("up", "up,k", "up", "move(-1)", "", "A row up"),
    ("page_down", "pagedown,space", "pgdn", "move(15)", "Down", "A page down"),
    ("page_up", "pageup", "pgup", "move(-15)", "Up", "A page up"),
)
_LOGS = (
    ("source", "tab", "tab", "source", "Source", "The server's log, or the panel's own notices"),
    ("filter", "slash", "/", "filter", "Filter", "Only lines with a text, or a /regex/"),
    ("level", "l", "l", "level", "Level", "All lines, warnings and errors, or errors alone"),
    ("next", "n", "n", "notable(1)", "Error", "The next warning or error"),
    ("previous", "N", "N", "notable(-1)", "", "The warning or error before"),
    ("follow", "f", "f", "follow", "Follow", "Stay at the end as the log grows, or stop that"),
    ("wrap", "w", "w", "wrap", "Wrap", "Show long lines whole, and back"),
    ("probes", "a", "a", "probes", "Probes", "Show or fold access lines of /metrics and /health"),
    ("copy", "y", "y", "copy", "Copy", "Copy the line under the cursor"),
    ("path", "o", "o", "path", "", "Say where the log file is"),
    ("up", "up,k", "up", "move(-1)", "", "The line before; stops following"),
    ("down", "down,j", "down", "move(1)", "", "The next line"),
    ("page_up", "pageup", "pgup", "page(-1)", "", "A page back"),
    ("page_down", "pagedown", "pgdn", "page(1)", "", "A page on"),
    ("home", "home,g", "home", "home", "", "The first line"),
    ("end", "end,G", "end", "end", "", "The last line, and follow"),
    ("clear", "escape", "esc", "clear", "", "Show all lines again"),
)
_TRAIN = (
    ("start", "enter,ctrl+r", "enter", "start", "Start", "Begin this recipe, or go on with it"),
    ("stop", "x", "x", "stop", "Stop", "Stop this training: it saves first; asks"),
    ("promote", "p", "p", "promote", "Promote", "Try the checkpoint in a running server; asks"),
    ("log", "o", "o", "log", "Log", "Open the log of what is being done"),
    ("checkpoint", "b", "b", "checkpoint", "", "Choose another checkpoint than the best"),
    ("next", "right_square_bracket", "]", "select(1)", "", "The next pane"),
    ("previous", "left_square_bracket", "[", "select(-1)", "", "The pane before"),
    ("zoom", "z", "z", "zoom", "Zoom", "Give the chosen pane the whole screen, and back"),
    ("earlier", "left", "left", "cursor(-1)", "", "Read the values of earlier steps"),
    ("later", "right", "right", "cursor(1)", "", "Read the values of later steps"),
    ("conditional", "c", "c", "conditional", "", "Accuracies given the one before, and back"),
    ("copy", "y", "y", "copy", "Copy", "Copy the command that does the same without the panel"),
    ("reread", "r", "r", "reread", "", "Read trainings and recipes again"),
    ("down", "down,j", "down", "move(1)", "", "The next training or recipe"),
    ("up", "up,k", "up", "move(-1)", "", "The one before"),
    ("page_down", "pagedown", "pgdn", "move(10)", "", "Ten on"),
    ("page_up", "pageup", "pgup", "move(-10)", "", "Ten back"),
    ("first", "home,g", "home", "move(-999999)", "", "The first training"),
    ("last", "end,G", "end", "move(999999)", "", "The last recipe"),
    ("leave", "escape", "esc", "leave", "", "Show all panes again"),
)
_TRAINLOG = (("back", "backspace,b", "b", "back", "Back", "Back to the training"),)
_TRAINSTART = (
    ("begin", "enter,ctrl+r", "enter", "begin", "", "Begin it"),
    ("cancel", "escape", "esc", "dismiss(None)", "", "Begin nothing"),
    ("field", "tab,shift+tab,down,up", "tab", "next_field", "", "The other field"),
    ("close", "ctrl+c", "^c", "dismiss(None)", "", "Begin nothing"),
)
_LAB = (
    ("new", "n", "n", "new", "New", "Choose an experiment and start it"),
    ("open", "enter", "enter", "open", "Open", "Give the result the whole screen, and back"),
    ("stop", "x", "x", "stop", "Stop", "Stop a running experiment and keep what it has; asks"),
    ("delete", "d,delete", "d", "delete", "Delete", "Delete a result for good; asks"),
    ("report", "e", "e", "report", "Report", "Write the result as an HTML page that stands alone"),
    ("reread", "r", "r", "reread", "", "Read the results again"),
    ("down", "down,j", "down", "move(1)", "", "The next result, or a row further in the open one"),
    ("up", "up,k", "up", "move(-1)", "", "The result before, or a row back in the open one"),
    ("page_down", "pagedown", "pgdn", "move(10)", "", "Ten on"),
    ("page_up", "pageup", "pgup", "move(-10)", "", "Ten back"),
    ("first", "home,g", "home", "move(-999999)", "", "The newest result"),
    ("last", "end,G", "end", "move(999999)", "", "The oldest result"),
    ("close", "escape", "esc", "close", "", "Back to the list"),
)
_LABNEW = (
    ("kind", "tab,right", "tab", "kind(1)", "", "The next kind of experiment"),
    ("kind_before", "shift+tab,left", "left", "kind(-1)", "", "The kind before"),
    ("mark", "space", "space", "mark", "", "Mark the profile as A, B and so on, or unmark it"),
    ("longer", "plus,equals_sign", "+", "minutes(1)", "", "More time"),
    ("shorter", "minus", "-", "minutes(-1)", "", "Less time"),
    ("down", "down,j", "down", "move(1)", "", "The next profile"),
    ("up", "up,k", "up", "move(-1)", "", "The profile before"),
    ("start", "enter", "enter", "start", "", "Start it"),
    ("cancel", "escape,q,ctrl+c", "esc", "dismiss(None)", "", "Start nothing"),
)
_MLA = (
    ("right", "right", "right", "turn(1)", "Change", "The next value of the setting"),
    ("view", "v", "v", "view", "View", "The next pane, or the maps alone, and back"),
    ("left", "left", "left", "turn(-1)", "", "The value before"),
    ("down", "down,j", "down", "move(1)", "", "The next setting"),
    ("up", "up,k", "up", "move(-1)", "", "The setting before"),
    ("longer", "right_square_bracket", "]", "prompt(1)", "", "Say of a longer prompt why"),
    ("shorter", "left_square_bracket", "[", "prompt(-1)", "", "Say of a shorter prompt why"),
    ("apply", "a", "a", "apply", "Try", "Try the marked advice"),
    ("advice", "n", "n", "advice", "", "Mark the next advice that can be tried"),
    ("write", "w,ctrl+s", "w", "write", "Write", "Write what was tried into the profile; asks"),
    ("explore", "p", "p", "explore", "Explore", "Look at the next built-in geometry"),
    (
        "calibrate",
        "c",
        "c",
        "calibrate",
        "Calibrate",
        "Measure on this machine where the paths cross; again: cancel",
    ),
    ("measured", "e", "e", "measured", "Measured", "The map as estimated, or as measured"),
    ("reset", "r", "r", "reset", "Reset", "Back to what the profile says"),
)
_PANEL = (
    ("launch", "1", "1", "show('launch')", "", "The Launch screen"),
    ("live", "2", "2", "show('live')", "", "The Live screen"),
    ("train", "3", "3", "show('train')", "", "The Train screen"),
    ("lab", "4", "4", "show('lab')", "", "The Lab screen"),
    ("mla", "5", "5", "show('mla')", "", "The MLA screen"),
    ("logs", "6", "6", "show('logs')", "", "The Logs screen"),
    ("palette", "ctrl+p", "^p", "command_palette", "Palette", "Find an action by name"),
    ("switch", "s", "s", "switcher", "Switch", "Change to another configuration or server"),
    ("switch_back", "S", "S", "switch_back", "", "Back to the configuration before this one"),
    ("stop", "x", "x", "stop_server", "", "Stop the server, or what is on its way; asks"),
    ("traffic", "t", "t", "traffic", "", "Send the profile's traffic, or no more"),
    ("mark", "m", "m", "mark", "", "Mark this moment in the charts and the recording"),
    ("sessions", "7", "7", "show('sessions')", "", "The Sessions screen"),
    ("help", "question_mark,f1", "?", "help", "Help", "The keys that work here"),
    (
        "quit",
        "q,ctrl+q,ctrl+c",
        "q",
        "quit",
        "Quit",
        "Leave; asks when a server, a training or an experiment is up",
    ),
)
_SWITCHER = (
    ("up", "up,ctrl+k", "up", "move(-1)", "", "The choice before"),
    ("down", "down,ctrl+j", "down", "move(1)", "", "The next choice"),
    ("page_up", "pageup", "pgup", "move(-8)", "", "Eight choices back"),
    ("page_down", "pagedown", "pgdn", "move(8)", "", "Eight choices on"),
    ("back", "escape", "esc", "back", "Back", "Forget what it means, then close"),
    ("close", "ctrl+c", "^c", "close", "", "Close"),
)
_QUIT = (
    ("leave", "l,enter", "l", "choose('leave')", "", "Leave it running: specpanel ps lists it"),
    ("stop", "s", "s", "choose('stop')", "", "Stop it, and then leave"),
    ("cancel", "c,escape,q,ctrl+c", "c", "choose('cancel')", "", "Stay here"),
)
_STOP = (
    ("yes", "y", "y", "dismiss(True)", "", "Stop it"),
    ("no", "n,enter,escape,q,ctrl+c", "n", "dismiss(False)", "", "Let it go on"),
)
_STOPPING = (("hurry", "q,ctrl+c", "q", "app.quit", "", "Kill instead of waiting"),)
_MARK = (
    ("cancel", "escape", "esc", "dismiss(None)", "", "Mark nothing"),
    ("close", "ctrl+c", "^c", "dismiss(None)", "", "Mark nothing"),
)
_CONFIRM = (
    ("yes", "y", "y", "dismiss(True)", "", "Do it"),
    ("no", "n,enter,escape,q,ctrl+c", "n", "dismiss(False)", "", "Leave everything as it is"),
)
_ERROR = (
    ("log", "l", "l", "dismiss(True)", "", "Open the log that it names"),
    ("close", "escape,enter,q,ctrl+c,space", "enter", "dismiss(False)", "", "Close"),
)
_HELP = (
    ("close", "escape,question_mark,q,ctrl+c,enter,f1", "esc", "dismiss", "", "Close the help"),
)
_WHY = (("close", "escape,w,q,ctrl+c,enter", "esc", "dismiss", "", "Close it"),)

_BEFORE_AN_EDITOR = frozenset(
    {"switcher.close", "mark.close", "trainstart.close", "trainstart.begin", "trainstart.field"}
)
"""Keys that an editor with the focus would take, and that work all the same."""


def _keys(scope: Scope, rows: tuple[tuple[str, str, str, str, str, str], ...]) -> tuple[Key, ...]:
    return tuple(
        Key(f"{scope}.{name}", keys, shown, action, label, text, scope)
        for name, keys, shown, action, label, text in rows
    )


KEYS: tuple[Key, ...] = (
    *_keys("launch", _LAUNCH),
    *_keys("live", _LIVE),
    *_keys("zoom", _ZOOM),
    *_keys("sessions", _SESSIONS),
    *_keys("replay", _REPLAY),
    *_keys("devices", _DEVICES),
    *_keys("logs", _LOGS),
    *_keys("train", _TRAIN),
    *_keys("trainlog", _TRAINLOG),
    *_keys("trainstart", _TRAINSTART),
    *_keys("lab", _LAB),
    *_keys("labnew", _LABNEW),
    *_keys("mla", _MLA),
    *_keys("panel", _PANEL),
    *_keys("switcher", _SWITCHER),
    *_keys("quit", _QUIT),
    *_keys("stop", _STOP),
    *_keys("stopping", _STOPPING),
    *_keys("mark", _MARK),
    *_keys("confirm", _CONFIRM),
    *_keys("error", _ERROR),
    *_keys("help", _HELP),
    *_keys("why", _WHY),
)


def keys_of(*scopes: Scope) -> tuple[Key, ...]:
    return tuple(key for scope in scopes for key in KEYS if key.scope == scope)


def bindings(*scopes: Scope) -> list[Binding]:
    """Textual's bindings for the keys of some scopes."""
    return [
        Binding(
            key.keys,
            key.action,
            key.label or key.help,
            show=bool(key.label),
            key_display=key.shown,
            id=key.id,
            tooltip=key.help,
            priority=key.id in _BEFORE_AN_EDITOR,
        )
        for key in keys_of(*scopes)
    ]
