"""`quarterdeck keys`: which key does what, and whether a file of other keys fits."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from console.commands.parsing import Parser, say, table
from console.errors import UsageError
from console.tui.actions import Action
from console.tui.keymap import Keymap, key_label, keymap_of, load_keymap, user_keys_file

_EPILOG = """\
A file of keys is YAML, action to key or list of keys; an empty list leaves an
action to the palette and to `:` alone:
  pause: f9
  up: [up, k, ctrl+k]
  rewind: []
Keys are written as x, X, ?, f9, space, enter, ctrl+x. Yours go into {file}, or are named with --keys.
"""


def keys_main(argv: Sequence[str]) -> int:
    """`quarterdeck keys`. Exit code 0, 2 for a file that does not fit."""
    parser = Parser("keys", "Shows the console's keys and what they do.", _EPILOG.format(file=user_keys_file()))
    parser.add_argument("--json", action="store_true", help="a JSON list: action, keys, help, kind, pages, changed")
    parser.add_argument("--keys", type=Path, metavar="FILE", help="with the keys of a file")
    parser.add_argument("--check", type=Path, metavar="FILE", help="only say whether the file fits")
    args = parser.parse_args(argv)
    if args.check is not None:
        changed = load_keymap(args.check).changed
        say(f"{args.check}: ok, {len(changed)} action{'' if len(changed) == 1 else 's'} with other keys")
        return 0
    keymap = load_keymap(args.keys) if args.keys is not None else _own()
    say(json.dumps([_record(a, keymap) for a in keymap.actions], indent=2) if args.json else _table(keymap))
    return 0


def _own() -> Keymap:
    path = user_keys_file()
    if not path.is_file():
        return keymap_of()
    try:
        return load_keymap(path)
    except UsageError as error:
        sys.stderr.write(f"quarterdeck: {error}; the default keys are shown\n")
        return keymap_of()


def _record(action: Action, keymap: Keymap) -> dict[str, object]:
    return {
        "action": action.id,
        "keys": list(action.keys),
        "help": action.help,
        "kind": action.kind,
        "pages": list(action.pages),
        "changed": action.id in keymap.changed,
    }


def _table(keymap: Keymap) -> str:
    where = {"command": "live run", "live": "live run", "replay": "replay", "bench": "bench look", "view": ""}
    rows = [("KEYS", "ACTION", "WHERE", "WHAT")]
    for action in keymap.actions:
        keys = " ".join(key_label(key) for key in action.keys) or "--"
        places = ", ".join(x for x in (where[action.kind], " ".join(action.pages)) if x)
        changed = "*" if action.id in keymap.changed else ""
        rows.append((keys, f"{action.id}{changed}", places or "everywhere", action.help))
    return table(rows) + (f"\n* changed by {user_keys_file()} or --keys" if keymap.changed else "")
