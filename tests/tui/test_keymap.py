"""The registry, and key maps from a file: every key names one thing, and what does not fit is refused by name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from textual.keys import _character_to_key

from console.cli import run as quarterdeck
from console.control.commands import COMMANDS
from console.errors import UsageError
from console.tui import keymap as km
from console.tui.actions import ACTIONS
from console.tui.keymap import clash, key_label, key_name, keymap_of, load_keymap, meet


@pytest.fixture
def keys_file(tmp_path: Path):
    def write(text: str) -> Path:
        path = tmp_path / "keys.yaml"
        path.write_text(text)
        return path

    return write


def test_ids_are_unique_and_the_default_keys_do_not_clash() -> None:
    assert len({a.id for a in ACTIONS}) == len(ACTIONS)
    assert clash(ACTIONS) is None
    shared = [(a, b) for a in ACTIONS for b in ACTIONS if a.id < b.id and set(a.keys) & set(b.keys)]
    assert shared and not any(meet(a, b) for a, b in shared)  # space: mark on a live run, play in a replay


def test_default_keys_are_written_as_a_file_may_write_them() -> None:
    for action in ACTIONS:
        assert all(key_name(key) == key for key in action.keys), action.id
        labels = [key_label(key) for key in action.keys]
        assert action.key in ("", *labels, " ".join(labels)), action.id


def test_every_command_has_an_action_and_destructive_ones_ask() -> None:
    assert {action.command for action in ACTIONS if action.command} | {"resume"} == set(COMMANDS)
    assert all(action.confirm == COMMANDS[action.command].destructive for action in ACTIONS if action.command)


def test_key_names_are_textuals() -> None:
    for code in range(0x21, 0x7F):
        assert key_name(chr(code)) == _character_to_key(chr(code))
    names = {"Space": "space", "ctrl+X": "ctrl+x", "F9": "f9", "alt+ctrl+k": "alt+ctrl+k", "ctrl++": "ctrl+plus"}
    assert {text: key_name(text) for text in names} == names
    assert [key_label(k) for k in ("question_mark", "ctrl+p", "escape", "f2", "shift+tab", "G")] == [
        "?", "^p", "esc", "F2", "shift+tab", "G"
    ]  # fmt: skip


@pytest.mark.parametrize(
    "text", ["", "esc", "xy", "ctrl+", "hyperx+a", "shift+a", "ctrl+i", "f99", "é", "\x1b[A", "a b"]
)
def test_what_is_no_key_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"key|modifier|write|terminals") as error:
        key_name(text)
    assert "\x1b" not in str(error.value) and "\n" not in str(error.value)


def test_a_file_changes_keys_and_leaves_the_others(keys_file) -> None:
    found = load_keymap(keys_file("pause: f9\nup: [up, k, 'ctrl+k']\nrewind: []\npane_1: 8\n"))
    assert found["pause"].keys == ("f9",) and found["pause"].key == "F9"
    assert found.by_key["f9"] == ("pause",) and "p" not in found.by_key
    assert found.by_key["ctrl+k"] == ("up",) and found.by_key["8"] == ("pane_1",)
    assert found["rewind"].keys == () and found.label("rewind") == ":rewind"
    assert set(found.changed) == {"pause", "up", "rewind", "pane_1"}
    assert found["retry"] == keymap_of()["retry"]


def test_one_key_may_mean_two_things_that_never_meet(keys_file) -> None:
    found = load_keymap(keys_file("checkpoint: f9\nplay: f9\n"))
    assert found.by_key["f9"] == ("checkpoint", "play")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("cancel_group: r\n", "cancel_group and retry are both on r"),
        ("log_scale: q\n", "quit and log_scale are both on q"),
        ("cancel: f9\n", "no action 'cancel': did you mean cancel_trial"),
        ("zzz: f9\n", "no action 'zzz'; `quarterdeck keys` lists them"),
        ("pause: [f9, nokey]\n", "pause: 'nokey' is no key"),
        ("pause: ~\n", "give a key or a list of keys"),
        ("pause: yes\n", "give a key or a list of keys"),
        ("pause: {a: b}\n", "give a key or a list of keys"),
        ("quit: []\n", "quit must keep a key"),
        ("palette: []\n", "palette must keep a key: only what is in the palette can do without"),
        ("pause: f9\nup: k\npause: f8\n", "pause is there twice, in lines 1 and 3"),
        ("- a\n", "not a list of"),
        ("a: [\n", "not YAML"),
        ("x: \x00\n", "not YAML"),
        ("# " + "x" * 70000, "larger than 64 KiB"),
    ],
)
def test_a_bad_file_is_one_line_that_names_it(keys_file, text: str, says: str) -> None:
    path = keys_file(text)
    with pytest.raises(UsageError) as error:
        load_keymap(path)
    assert says in str(error.value) and str(error.value).startswith(f"{path}: ")
    assert "\n" not in str(error.value) and error.value.exit_code == 2


def test_a_file_that_is_not_there_or_no_text(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        load_keymap(tmp_path / "no.yaml")
    path = tmp_path / "keys.yaml"
    path.write_bytes(b"pause: \xff\xfe")
    with pytest.raises(UsageError, match="not UTF-8"):
        load_keymap(path)


# --- the command ----------------------------------------


@pytest.fixture(autouse=True)
def own_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A config directory of the test's own."""
    monkeypatch.setattr(km, "user_config_dir", lambda: tmp_path / "config")
    monkeypatch.setattr("console.commands.keys.user_keys_file", lambda: tmp_path / "config" / "keys.yaml")
    return tmp_path / "config"


def test_keys_prints_every_action(capsys, keys_file) -> None:
    assert quarterdeck(["keys", "--json"]) == 0
    records = json.loads(capsys.readouterr().out)
    assert [r["action"] for r in records] == [a.id for a in ACTIONS]
    assert not any(r["changed"] for r in records)
    assert quarterdeck(["keys", "--keys", str(keys_file("pause: f9\n"))]) == 0
    out = capsys.readouterr().out
    assert "F9  " in out and "pause*" in out and len(out.splitlines()) == len(ACTIONS) + 2


def test_keys_check(capsys, keys_file) -> None:
    assert quarterdeck(["keys", "--check", str(keys_file("pause: f9\n"))]) == 0
    assert capsys.readouterr().out.endswith("keys.yaml: ok, 1 action with other keys\n")
    assert quarterdeck(["keys", "--check", str(keys_file("pause: r\n"))]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and "retry and pause are both on r" in err


def test_the_users_own_file_is_used_and_a_broken_one_left_aside(capsys, own_config: Path) -> None:
    own_config.mkdir()
    own = own_config / "keys.yaml"
    own.write_text("pause: f9\n")
    assert quarterdeck(["keys"]) == 0
    assert "pause*" in capsys.readouterr().out
    own.write_text("pause: r\n")
    assert quarterdeck(["keys"]) == 0
    out, err = capsys.readouterr()
    assert "both on r" in err and "default keys" in err and "*" not in out
