"""Which key means which action: the registry's defaults, changed by a file. Clashes are refused by name.

A file is YAML, action to key or list of keys (an empty list takes the keys of an action of the palette away):

    pause: f9
    up: [up, k, ctrl+k]
    stop_now: []
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

from console.errors import UsageError
from console.state.sanitize import sanitize
from console.tui.actions import ACTIONS, Action

if TYPE_CHECKING:
    import yaml

MAX_BYTES = 64 * 1024
ALWAYS_BOUND = ("quit", "help")
"""Actions that must keep a key."""
NOT_LISTED = {
    "palette", "command_line", "up", "down", "left", "right", "page_up", "page_down", "first", "last",
    *(f"pane_{n}" for n in range(1, 7)),
}  # fmt: skip
"""Actions that the palette does not have: without a key there would be no way to them."""

_SIGNS = {"solidus": "slash", "reverse_solidus": "backslash", "commercial_at": "at", "hyphen_minus": "minus",
          "plus_sign": "plus", "low_line": "underscore"}  # fmt: skip
_SHOWN = {"escape": "esc", "pageup": "pgup", "pagedown": "pgdn", "up": "↑", "down": "↓", "left": "←", "right": "→"}
_NAMED = {
    "enter", "escape", "tab", "space", "backspace", "delete", "insert", "home", "end", "pageup", "pagedown", "up",
    "down", "left", "right", *(f"f{n}" for n in range(1, 25)),
}  # fmt: skip
_MODIFIERS = ("alt", "ctrl", "shift", "super", "meta", "hyper")
_SAME = {"ctrl+i": "tab", "ctrl+m": "enter", "ctrl+j": "enter", "ctrl+left_square_bracket": "escape"}
"""What a terminal sends for these is another key."""


def _sign_name(char: str) -> str:
    name = unicodedata.name(char).lower().replace("-", "_").replace(" ", "_")
    return _SIGNS.get(name, name)


_PUNCTUATION = {_sign_name(c): c for c in map(chr, range(0x21, 0x7F)) if not c.isalnum()}


def key_name(text: str) -> str:
    """A key as Textual names it: `?` is question_mark, `ctrl+X` is ctrl+x. Raises `ValueError` for no such key."""
    text = text.strip()
    if text == "+" or text.endswith("++"):  # the key is + itself
        head, last = text[:-2], "+"
    else:
        head, _, last = text.rpartition("+")
    modifiers = head.split("+") if head else []
    known = {m.lower() for m in modifiers}
    if len(last) == 1 and last.isprintable() and last.isascii():
        name = last if last.isalnum() else "space" if last == " " else _sign_name(last)
    elif last.lower() in _NAMED or last.lower() in _PUNCTUATION:
        name = last.lower()
    else:
        raise ValueError(f"{sanitize(text, limit=40)!r} is no key: write x, X, ?, f9, space, enter or ctrl+x")
    if not known <= set(_MODIFIERS):
        raise ValueError(f"{sanitize(text, limit=40)!r}: no such modifier; there are {', '.join(_MODIFIERS)}")
    if "shift" in known and len(name) == 1:
        raise ValueError(f"{sanitize(text, limit=40)!r}: write the capital letter or the sign itself")
    if known:
        name = "+".join([*sorted(known), name.lower()])
    if name in _SAME:
        raise ValueError(f"{sanitize(text, limit=40)!r}: terminals send {_SAME[name]} for it")
    return name


def key_label(name: str) -> str:
    """How a key is shown: ?, ^p, esc, F2."""
    *modifiers, last = name.split("+")
    shown = _PUNCTUATION.get(last) or _SHOWN.get(last) or (last.upper() if last[:1] == "f" and last[1:] else last)
    if modifiers == ["ctrl"]:
        return f"^{shown}"
    return "+".join([*modifiers, shown])


@dataclass(frozen=True)
class Keymap:
    """The actions with the keys that they have here, and the way back from a key.

    Attributes:
        actions: the registry in its order, with other keys; by_id: the same; by_key: ids that a key may mean.
        labels: id to its first key as it is shown, empty without one.
        changed: ids whose keys are not the default ones.
    """

    actions: tuple[Action, ...]
    by_id: Mapping[str, Action]
    by_key: Mapping[str, tuple[str, ...]]
    labels: Mapping[str, str]
    changed: tuple[str, ...] = ()

    def __getitem__(self, action_id: str) -> Action:
        return self.by_id[action_id]

    def label(self, action_id: str) -> str:
        """The key of an action as it is shown, or how to reach it without one."""
        action = self[action_id]
        return action.key or f":{action_id.replace('_', '-')}"


def keymap_of(changes: Mapping[str, tuple[str, ...]] | None = None) -> Keymap:
    """The default keys with some replaced."""
    changes = changes or {}
    actions = tuple(
        replace(action, keys=changes[action.id], key=key_label(changes[action.id][0]) if changes[action.id] else "")
        if action.id in changes and changes[action.id] != action.keys
        else action
        for action in ACTIONS
    )
    by_key: dict[str, tuple[str, ...]] = {}
    for action in actions:
        for key in action.keys:
            by_key[key] = (*by_key.get(key, ()), action.id)
    changed = tuple(a.id for a, default in zip(actions, ACTIONS) if a.keys != default.keys)
    labels = {action.id: action.key for action in actions}
    return Keymap(actions, {action.id: action for action in actions}, by_key, labels, changed)


def load_keymap(path: Path) -> Keymap:
    """The keys of a file. Raises `UsageError`: one line that names the file, the action and the key."""
    changes: dict[str, tuple[str, ...]] = {}
    known = {action.id for action in ACTIONS}
    for id, value in _read(path).items():
        if id not in known:
            raise UsageError(f"{path}: no action {sanitize(id, limit=40)!r}{_close(str(id), known)}")
        keys = value if isinstance(value, list) else [value]
        if any(isinstance(key, bool) or not isinstance(key, (str, int)) for key in keys):
            raise UsageError(f"{path}: {id}: give a key or a list of keys, in quotes where YAML reads something else")
        try:
            changes[id] = tuple(dict.fromkeys(key_name(str(key)) for key in keys))
        except ValueError as error:
            raise UsageError(f"{path}: {id}: {error}") from None
        if not changes[id] and (id in ALWAYS_BOUND or id in NOT_LISTED):
            why = "" if id in ALWAYS_BOUND else ": only what is in the palette can do without"
            raise UsageError(f"{path}: {id} must keep a key{why}")
    keymap = keymap_of(changes)
    found = clash(keymap.actions)
    if found is not None:
        key, one, other = found
        raise UsageError(f"{path}: {one.id} and {other.id} are both on {key_label(key)}: give one of them another key")
    return keymap


def clash(actions: Iterable[Action]) -> tuple[str, Action, Action] | None:
    """The first key that two actions have which can both be there on one page and in one mode."""
    for one, other in combinations(actions, 2):
        shared = set(one.keys) & set(other.keys)
        if shared and meet(one, other):
            return min(shared), one, other
    return None


def meet(one: Action, other: Action) -> bool:
    """Whether there are a page and a mode that have both actions."""
    pages = not one.pages or not other.pages or set(one.pages) & set(other.pages)
    return bool(pages and _modes(one) & _modes(other))


def _modes(action: Action) -> set[str]:
    return {"view": {"live", "replay", "bench"}, "replay": {"replay"}, "bench": {"bench"}}.get(action.kind, {"live"})


def user_keys_file() -> Path:
    """Where a user's own keys are."""
    return user_config_dir() / "keys.yaml"


def user_config_dir() -> Path:
    """The directory of the user's own keys and themes."""
    import platformdirs

    return platformdirs.user_config_path("quarterdeck")


def _read(path: Path) -> dict[object, object]:
    import yaml

    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise UsageError(f"{path}: larger than {MAX_BYTES // 1024} KiB, this is no key map")
        text, loader = data.decode("utf-8"), getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        node = yaml.compose(text, Loader=loader)
        content = yaml.load(text, Loader=loader)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror}); `quarterdeck keys` shows the keys") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not UTF-8") from error
    except yaml.YAMLError as error:
        raise UsageError(f"{path}: not YAML ({sanitize(str(error), limit=120)})") from error
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise UsageError(f"{path}: not a list of `action: key` lines; `quarterdeck keys` shows the actions")
    if isinstance(node, yaml.MappingNode):
        _check_once(path, node)
    return content


def _check_once(path: Path, node: yaml.MappingNode) -> None:
    """YAML takes the last of two lines for one action. Raises `UsageError`."""
    seen: dict[object, int] = {}
    for key, _ in node.value:
        line = key.start_mark.line + 1
        if isinstance(key.value, str) and key.value in seen:
            name = sanitize(key.value, limit=40)
            raise UsageError(f"{path}: {name} is there twice, in lines {seen[key.value]} and {line}")
        seen[key.value if isinstance(key.value, str) else id(key)] = line


def _close(id: str, known: Iterable[str]) -> str:
    from difflib import get_close_matches

    close = get_close_matches(id, list(known), n=2, cutoff=0.5)
    return f": did you mean {' or '.join(close)}?" if close else "; `quarterdeck keys` lists them"
