"""What the run was started with: only what differs from the defaults, and what was changed since."""

from __future__ import annotations

from urllib.parse import urlsplit, urlunsplit

import msgspec

from console.control.commands import COMMANDS
from console.state.model import RunState
from console.state.sanitize import sanitize
from console.state.thresholds import AlarmThresholds
from console.state.words import BENCHMARK, plural
from console.tui.operating import tunable_text
from console.tui.pages.text_page import Row, Section, TextPage, labelled
from console.tui.picture import Scene
from console.tui.text import Span, clock

_LONGEST_NAME = 56


class ConfigPage(TextPage):
    """Secrets were taken out by the engine before the run recorded its options."""

    id = "config"
    title = "Config"

    def heading(self, scene: Scene) -> str:
        """Whose it is."""
        return "Config  only what differs from the defaults"

    def sections(self, scene: Scene, cells: int) -> list[Section]:
        """The run, options, tunables, thresholds, tasks left out, versions."""
        state = scene.state
        pairs: dict[str, list[tuple[str, Span]]] = {
            "Run": _run(state, scene.now),
            "Options": [(name, Span(_value(value))) for name, value in sorted(state.config.items())],
            "While it runs": _tunables(state),
            "Thresholds of alarms": _thresholds(state),
            "Tasks left out": [(task, Span("quarantined", "limit")) for task in sorted(state.quarantined)],
            "Versions": [(name, Span(sanitize(version, limit=80))) for name, version in sorted(state.versions.items())],
        }
        out = []
        for heading, found in pairs.items():
            named = [(sanitize(name, limit=200), span) for name, span in found]
            width = min(_LONGEST_NAME, cells // 2, max((len(name) for name, _ in named), default=0) + 2)
            rows = [labelled(name, [span], cells, width) for name, span in named]
            out.append(Section(heading, rows or [_nothing(heading)]))
        return [section for section in out if section.heading != "Tasks left out" or state.quarantined]


def _nothing(heading: str) -> Row:
    texts = {"Options": "every option has its default", "Thresholds of alarms": "every threshold has its default"}
    text = texts.get(heading, "the run says nothing of it")
    return labelled("", [Span(text, "muted")], 80, 1)


def _run(state: RunState, now: float) -> list[tuple[str, Span]]:
    bench, b = state.kind == BENCHMARK, state.bench
    tries = f"Harbor tries {'some failures' if state.on_failure == 'retry' else 'nothing'} again"
    of_job = [
        ("job", b.job_dir),
        ("dataset", b.dataset),
        ("agent", ", ".join(b.agents)),
        ("trials", f"{b.trials}: {plural(b.tasks, 'task')}, {plural(b.attempts, 'attempt')} each" if b.trials else ""),
        ("mops up", b.parent),
        ("on a failure", tries),
    ]
    of_training = [
        ("on a failure", state.on_failure),
        ("steps", "" if state.steps_planned is None else str(state.steps_planned)),
        ("batch", f"{state.groups_per_batch} groups of {state.group_size}" if state.group_size else ""),
    ]
    found = [
        ("name", state.name),
        ("id", state.run_id),
        ("model", state.model),
        ("endpoint" if bench else "gateway", bare_url(state.gateway_url or "")),
        ("directory", state.run_dir),
        ("socket", state.socket or ""),
        ("running for", clock(now - state.started) if state.started else ""),
        ("engines so far", str(state.engines) if state.engines > 1 else ""),
        *(of_job if bench else of_training),
        ("owner", "the command that started it: it ends with that" if state.owned else ""),
    ]
    return [(name, Span(sanitize(text, limit=1000))) for name, text in found if text]


def _tunables(state: RunState) -> list[tuple[str, Span]]:
    """Values, now and before they were changed, and what they count."""
    meant = {arg.name: arg.help.partition(";")[0] for arg in COMMANDS["set"].args}
    out = []
    for name, value in state.tunables.items():
        old = state.tunables_at_start.get(name, value)
        changed = value != old
        text = f"{tunable_text(old)} -> {tunable_text(value)}" if changed else tunable_text(value)
        about = f"  {meant[name]}" if name in meant else ""
        out.append((name, Span(f"{text}{about}", "limit" if changed else "")))
    return out


def _thresholds(state: RunState) -> list[tuple[str, Span]]:
    usual = msgspec.structs.asdict(AlarmThresholds())
    return [
        (name, Span(f"{tunable_text(value)} (default {tunable_text(usual[name])})" if name in usual else f"{value:g}"))
        for name, value in sorted(state.thresholds.items())
        if name not in usual or value != usual[name]
    ]


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "none"
    return sanitize(f"{value:g}" if isinstance(value, float) else value, limit=1000)


def bare_url(url: str) -> str:
    """The address without user, password and query, where secrets may be."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        port = f":{parts.port}" if parts.port is not None else ""
    except ValueError:
        return "(not an address)" if url else ""
    if not host:
        return url.rpartition("@")[2].partition("?")[0]
    host = f"[{host}]" if ":" in host else host
    return urlunsplit((parts.scheme, f"{host}{port}", parts.path, "", ""))
