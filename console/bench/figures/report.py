"""What a tally shows: its tables, and its JSON object."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec

from console.bench.figures import modes
from console.bench.figures.tables import Column, Kind, Table, Value
from console.bench.figures.tally import GroupTally, Tally
from console.bench.figures.usage import Spread
from console.bench.model import Figures
from console.bench.rows import Notice, counted

_CONTRACT = (
    "mode", "numerator", "denominator", "value", "excluded", "se_within", "se_across", "ci95", "pass_at",
)  # fmt: skip
"""Keys of a mode's object that come first and never go."""
_QUANTITIES = (
    ("input tokens", "input_tokens", "tokens", Kind.COUNT),
    ("cached tokens", "cached_tokens", "tokens", Kind.COUNT),
    ("output tokens", "output_tokens", "tokens", Kind.COUNT),
    ("cost", "cost_usd", "usd", Kind.DOLLARS),
    ("agent time", "agent_seconds", "seconds", Kind.SECONDS),
    ("verifier time", "verify_seconds", "seconds", Kind.SECONDS),
    ("whole trial", "total_seconds", "seconds", Kind.SECONDS),
)
TABLES = ("figures", "errors", "pass_at", "excluded", "outcomes", "tasks", "usage", "notices")


def tables(group: GroupTally, main: str = modes.DEFAULT) -> dict[str, Table]:
    """Name (of `TABLES`) to table, of one agent, model and dataset; those without anything to say are left out.

    Args:
        main: the mode of the table of tasks, where that was tallied; else the first that was.
    """
    names = [figures.mode for figures in group.modes]
    main = main if main in names or not names else names[0]
    found = [_figures(group), _errors(group), _pass(group), _excluded(group), _outcomes(group)]
    found += [_tasks(group, main), _usage(group), notice_table(group.notices)]
    return {table.name: table for table in found if table.rows or table.name == "figures"}


def heading(group: GroupTally) -> str:
    """One line that names what the tables are of, not yet made safe for a terminal."""
    names = (("agent", group.agent), ("model", group.model), ("dataset", group.dataset))
    return ", ".join(f"{what} {name or 'unknown'}" for what, name in names)


def as_json(tally: Tally) -> dict[str, object]:
    """One object of plain values: `v` 1, `modes` with an object for each mode and group in order, `groups` with the
    rest. Shares lie between 0 and 1, times are in seconds; what is undefined is null, and `undefined` says why."""
    return {
        "v": 1,
        "merge": tally.merge,
        "merge_rule": tally.merge_rule,
        "modes": [_mode_json(group, figures) for group in tally.groups for figures in group.modes],
        "groups": [_group_json(group) for group in tally.groups],
        "notices": msgspec.to_builtins(tally.notices),
    }


def notice_table(notices: Iterable[Notice]) -> Table:
    """Notices as a table: in text and Markdown their sentences stand whole below it."""
    notices = list(notices)
    return Table(
        name="notices",
        title="What to know",
        columns=(Column("notice", "code"), Column("text", "text", csv_only=True), Column("e.g.", "trial")),
        rows=tuple((notice.code, notice.text, next(iter(notice.trials), "")) for notice in notices),
        notes=tuple(f"{notice.code}: {notice.text}." for notice in notices),
    )


def _mode_json(group: GroupTally, figures: Figures) -> dict[str, object]:
    plain: dict[str, object] = msgspec.to_builtins(figures)
    for key in ("pass_at", "pass_all"):
        plain[key] = {str(k): list(found) for k, found in getattr(figures, key).items()}
    first = {key: plain.pop(key) for key in _CONTRACT}
    return {**first, **plain, "agent": group.agent, "model": group.model, "dataset": group.dataset}


def _group_json(group: GroupTally) -> dict[str, object]:
    plain: dict[str, object] = msgspec.to_builtins(group)
    del plain["modes"]
    return plain


def _figures(group: GroupTally) -> Table:
    columns = (
        Column("mode", "mode"),
        Column("score", "numerator", Kind.SCORE),
        Column("of", "denominator", Kind.COUNT),
        Column("value", "value", Kind.SHARE),
        Column("95 % interval", "ci95", Kind.RANGE),
        Column("left out", "excluded", Kind.COUNT),
        Column("counted", "coverage", Kind.SHARE),
    )
    rows = tuple(
        (f.mode, f.numerator, f.denominator, f.value, f.ci95, sum(f.excluded.values()), f.coverage) for f in group.modes
    )
    planned = "of an unknown plan" if group.planned is None else f"of {group.planned} planned"
    title = (
        f"{counted(group.attempts, 'attempt')} {planned}, {group.missing} missing; "
        f"{counted(group.trials, 'trial')} on disk"
    )
    notes = [f"{f.mode}: {f.rule}{_remark(f.mode)}." for f in group.modes]
    notes += _told(group, ((f.mode, warning) for f in group.modes for warning in f.warnings))
    notes += _told(group, _reasons(group, value="value", ci95="interval"))
    return Table(name="figures", title=title, columns=columns, rows=rows, notes=tuple(notes))


def _remark(name: str) -> str:
    known = modes.MODES.get(name)
    return f"; {known.remark}" if known and known.remark else ""


def _told(group: GroupTally, said: Iterable[tuple[str, str]]) -> list[str]:
    """Sentences that several modes share, once, with the modes that they concern."""
    by_text: dict[str, dict[str, None]] = {}
    for mode, text in said:
        by_text.setdefault(text, {})[mode] = None
    everyone = len(group.modes)
    return [
        f"{'all modes' if 1 < everyone == len(names) else ', '.join(names)}: {text}." for text, names in by_text.items()
    ]


def _reasons(group: GroupTally, **names: str) -> Iterable[tuple[str, str]]:
    """Mode and sentence for each figure of `names` (key to what people call it) that is undefined."""
    for key, name in names.items():
        yield from ((f.mode, f"no {name}: {f.undefined[key]}") for f in group.modes if key in f.undefined)


def _errors(group: GroupTally) -> Table:
    columns = (
        Column("mode", "mode"),
        Column("within", "se_within", Kind.POINTS),
        Column("across", "se_across", Kind.POINTS),
        Column("interval by", "ci_method"),
        Column("per", "per"),
        Column("tasks", "tasks", Kind.COUNT),
        Column("attempts", "attempts_per_task"),
    )
    rows = tuple((f.mode, f.se_within, f.se_across, f.ci_method or None, f.per, f.tasks, _span(f)) for f in group.modes)
    notes = [
        "within: standard error in points if the same tasks were run again; tasks fixed.",
        "across: standard error in points for tasks like these; tasks as a sample.",
    ]
    notes += _told(group, _reasons(group, se_within="error within tasks", se_across="error across tasks"))
    return Table(name="errors", title="Standard errors", columns=columns, rows=rows, notes=tuple(notes))


def _span(figures: Figures) -> str:
    low, high = figures.attempts_min, figures.attempts_max
    return str(low) if low == high else f"{low} to {high}"


def _pass(group: GroupTally) -> Table:
    columns = (
        Column("mode", "mode"),
        Column("k", "k", Kind.COUNT),
        Column("pass@k", "pass_at", Kind.SHARE),
        Column("pass^k", "pass_all", Kind.SHARE),
        Column("tasks with k attempts", "tasks", Kind.COUNT),
    )
    rows: list[tuple[Value, ...]] = []
    for f in group.modes:
        if len(f.pass_at) > 1:
            rows += [(f.mode, k, value, f.pass_all[k][0], tasks) for k, (value, tasks) in f.pass_at.items()]
    notes = ["attempts that a mode leaves out lower its number of attempts of a task."]
    notes += _told(group, _reasons(group, pass_at="pass@k"))
    title = "At least one of k attempts passes, and all of them do"
    return Table(name="pass_at", title=title, columns=columns, rows=tuple(rows), notes=tuple(notes))


def _excluded(group: GroupTally) -> Table:
    rows: list[tuple[Value, ...]] = []
    for f in group.modes:
        rows += [(f.mode, why, number, "yes" if why in f.undecided else "") for why, number in f.excluded.items()]
        if f.missing:
            rows.append((f.mode, "missing", f.missing, "yes"))
    columns = (
        Column("mode", "mode"),
        Column("class/cause", "kind"),
        Column("attempts", "attempts", Kind.COUNT),
        Column("could be anything", "undecided"),
    )
    return Table(name="excluded", title="Attempts that are left out", columns=columns, rows=tuple(rows))


def _outcomes(group: GroupTally) -> Table:
    columns = (
        Column("class/cause", "kind"),
        Column("attempts", "attempts", Kind.COUNT),
        Column("share", "share", Kind.SHARE),
    )
    rows = tuple((kind, number, number / group.attempts) for kind, number in group.outcomes.items())
    return Table(name="outcomes", title="How the attempts ended", columns=columns, rows=rows)


def _tasks(group: GroupTally, main: str) -> Table:
    columns = (
        Column("task", "task"),
        Column("score", "score", Kind.SCORE),
        Column("of", "counted", Kind.COUNT),
        Column("mean", "mean", Kind.SHARE),
        Column("outcomes", "outcomes"),
        Column("agent", "agent_seconds_median", Kind.SECONDS),
    )
    rows = tuple(
        (
            task.task,
            *task.scores.get(main, (0.0, 0)),
            task.mean(main),
            ", ".join(kind if number == 1 else f"{number} {kind}" for kind, number in task.outcomes.items()),
            task.agent_seconds.median,
        )
        for task in group.tasks
    )
    undefined = Counter(task.mean(main) is None for task in group.tasks)[True]
    notes = ["agent: median time of the agent."]
    if undefined:
        notes.append(f"a mean is - where the mode leaves out every attempt of the task: {undefined} here.")
    return Table(name="tasks", title=f"Tasks, by the mode {main}", columns=columns, rows=rows, notes=tuple(notes))


def _usage(group: GroupTally) -> Table:
    columns = (
        Column("what", "what"),
        Column("unit", "unit", csv_only=True),
        Column("trials", "trials"),
        Column("known", "known", Kind.COUNT),
        Column("sum", "sum", Kind.MIXED),
        Column("median", "median", Kind.MIXED),
        Column("95th", "p95", Kind.MIXED),
    )
    sides = [("counted", group.counted)]
    if group.replaced:
        sides.append(("all tries", group.spent))
    rows: list[tuple[Value, ...]] = []
    kinds = []
    for what, key, unit, kind in _QUANTITIES:
        for name, used in sides:
            spread: Spread = getattr(used, key)
            rows.append((what, unit, name, spread.known, spread.total, spread.median, spread.p95))
            kinds.append(kind)
    notes = ["known: trials that record it; agents that were killed often record no tokens or too few."]
    if group.replaced:
        notes.append(f"all tries: with the {group.replaced} that others replaced, which were paid for all the same.")
    return Table(
        name="usage",
        title="Tokens, cost and time",
        columns=columns,
        rows=tuple(rows),
        notes=tuple(notes),
        kinds=tuple(kinds),
    )
