"""Options of alarms and notifications: thresholds as a section of their own, addresses and commands as secrets."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from console.errors import UsageError
from console.state.thresholds import AlarmThresholds
from console.training.options import RunOptions, parse
from console.training.schema import help_text

COMMAND = """config.learning_rate=1e-6 config.model_name=m config.max_tokens=8 config.log_path=/tmp/x
  config.dataset_builder.tasks_dir=/data/tasks harbor.trial_config=trial.json"""
BASE = COMMAND.split()
HOOK = "https://me:pw@hooks.example/T0/s3cret?token=s3cret"


def refused(*words: str, base: list[str] = BASE, cwd: Path | None = None) -> str:
    with pytest.raises(UsageError) as caught:
        parse([*base, *words], cwd=cwd)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_thresholds_from_the_command_line_and_a_file(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text("[console]\nnotify_every = 60\n[console.alarms]\nkl = 0.02\ndisk_free_gb = 20\n")
    options = parse([*BASE, "run.toml", "console.alarms.kl=0.03"], cwd=tmp_path)
    assert options.console.alarms == AlarmThresholds(kl=0.03, disk_free_gb=20.0)
    assert options.value("console.alarms.kl") == 0.03 and options.value("console.alarms.clip_share") == 0.2
    assert options.overrides()["console.alarms.disk_free_gb"] == 20.0
    assert "console.alarms.clip_share" not in options.overrides()
    assert RunOptions.from_json(options.to_json()) == options
    recorded = msgspec.to_builtins(options.console.alarms)
    assert AlarmThresholds.from_state(recorded) == options.console.alarms
    assert all(isinstance(value, float) for value in recorded.values())


def test_recorded_thresholds_of_another_version_are_read_as_far_as_they_go() -> None:
    odd = {"kl": 0.5, "a_later_one": 3.0, "clip_share": float("nan"), "stall_seconds": -1.0}
    assert AlarmThresholds.from_state(odd) == AlarmThresholds(kl=0.5)
    assert AlarmThresholds.from_state({}) == AlarmThresholds()


@pytest.mark.parametrize(
    ("word", "parts"),
    [
        ("console.alarms.kll=1", ["unknown option console.alarms.kll", "console.alarms.kl?"]),
        ("console.alarm.disk_free_gb=1", ["console.alarms.disk_free_gb?"]),
        ("console.alarms=1", ["unknown option console.alarms;", "console.alarms."]),
        ("console.alarms.kl=-1", ["console.alarms.kl", "0 or more"]),
        ("console.alarms.kl=inf", ["console.alarms.kl", "finite"]),
        ("console.notify_level=info", ["one of warning, critical"]),
        ("console.notify_every=-1", ["console.notify_every must be 0 or more"]),
        ("console.ping_interval=0.5", ["console.ping_interval must be 1 or more"]),
        ("console.notify_webhook=hooks.example/s3cret", ["console.notify_webhook", "https://"]),
        ("console.notify_webhook=ftp://s3cret", ["https://"]),
        ("console.notify_webhook=https:///s3cret", ["https://"]),
        ("console.notify_webhook=https://h:99999/s3cret", ["https://"]),
        ("console.ping_url=https://h/s3cret s3cret", ["console.ping_url", "https://"]),
        ("console.notify_command=", ["console.notify_command", "empty"]),
        ("console.notify_command=say 's3cret", ["console.notify_command", "quotation"]),
    ],
)
def test_mistakes_name_the_option_and_no_secret(word: str, parts: list[str]) -> None:
    text = refused(word)
    assert all(part in text for part in parts), text
    assert "s3cret" not in text


def test_mistakes_in_a_file_name_no_secret_either(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text('[console]\nnotify_webhook = ["https://h/s3cret"]\n')
    text = refused("run.toml", cwd=tmp_path)
    assert "console.notify_webhook must be an address" in text and "s3cret" not in text
    (tmp_path / "run.toml").write_text("[console.alarms]\nkl = true\n")
    assert "console.alarms.kl must be a finite number" in refused("run.toml", cwd=tmp_path)


def test_addresses_and_commands_are_never_recorded() -> None:
    words = [f"console.notify_webhook={HOOK}", f"console.ping_url={HOOK}", "console.notify_command=curl -H s3cret"]
    options = parse([*BASE, *words])
    assert options.console.notify_webhook == HOOK and options.console.notify_command == "curl -H s3cret"
    shown = options.overrides()
    assert {shown[word.partition("=")[0]] for word in words} == {"[redacted]"}
    assert "s3cret" not in str(shown) and "pw@" not in str(shown)
    assert parse([*BASE, "console.ping_url=None"]).overrides().get("console.ping_url") is None


def test_a_relative_command_starts_where_it_was_written(tmp_path: Path) -> None:
    assert parse([*BASE, "console.notify_command=./tell 'a b'"], cwd=tmp_path).console.notify_command == (
        f"{tmp_path}/tell 'a b'"
    )
    assert parse([*BASE, "console.notify_command=tell ./x"], cwd=tmp_path).console.notify_command == "tell ./x"


def test_help_has_the_alarms_under_a_heading_of_their_own() -> None:
    text = help_text()
    heading = text.index("\nconsole.alarms: ")
    assert heading < text.index("  console.alarms.kl  (float, default 0.01)")
    assert text.index("  console.name  ") < heading
