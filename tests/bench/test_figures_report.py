"""A tally from verdicts to its tables and its JSON object."""

from __future__ import annotations

import csv
import io
import json
import tracemalloc
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from judged_trials import C, a_job, clean, judged, sandbox_failures, timeouts
from rich.cells import cell_len

from console.bench.figures.modes import MODES
from console.bench.figures.report import TABLES, as_json, heading, tables
from console.bench.figures.tables import Column, Kind, Table, to_csv, to_markdown, to_text, written
from console.bench.figures.tally import GroupTally, tally
from console.bench.figures.usage import spread
from console.bench.model import Judged
from console.errors import UsageError

RUN = [
    *clean([1] * 53 + [0] * 16, input_tokens=1000, output_tokens=10, cost_usd=0.5),
    *timeouts(16, 0.0, input_tokens=0, output_tokens=None),
    *sandbox_failures(["circuit-fibsqrt", "query-optimize"], cost_usd=1.0),
]
AGAIN = sandbox_failures(["circuit-fibsqrt", "query-optimize"], job="two", at=5000, cost_usd=2.0)
PLAN = [a_job(planned=89, attempts=1), a_job("two", planned=2, attempts=1)]
HOSTILE = "\x1b]0;owned\x07x/=cmd|' C calc'!A0\n| `x` <b> 任务任务任务任务任务任务任务任务任务任务"


@pytest.fixture(scope="module")
def run() -> GroupTally:
    (group,) = tally([*RUN, *AGAIN], PLAN).groups
    return group


def rows_of(table: Table) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO("".join(to_csv(table)))))


def test_a_tally_counts_attempts_tries_and_plans(run: GroupTally) -> None:
    assert (run.trials, run.attempts, run.replaced, run.again, run.planned, run.missing) == (89, 87, 2, 0, 89, 2)
    assert run.outcomes == {"completed": 69, "agent_timeout": 16, "infrastructure/sandbox": 2}
    assert [figures.mode for figures in run.modes] == list(MODES)
    task = next(task for task in run.tasks if task.task == "circuit-fibsqrt")
    assert task.mean("infra-excluded") is None and task.mean("error-aware") == 0.0
    assert len(run.tasks) == 87 and sum(t.scores["infra-excluded"][0] for t in run.tasks) == 53


def test_usage_is_that_of_the_counted_tries_and_of_all_that_were_paid_for(run: GroupTally) -> None:
    assert (run.counted.cost_usd.known, run.counted.cost_usd.total) == (71, 0.5 * 69 + 2 * 2.0)
    assert (run.spent.cost_usd.known, run.spent.cost_usd.total) == (73, 0.5 * 69 + 2 * 2.0 + 2 * 1.0)
    assert (run.counted.trials, run.spent.trials) == (87, 89)
    assert run.counted.input_tokens.known == 85 and run.counted.input_tokens.total == 69_000  # a zero is known
    assert run.counted.output_tokens.known == 69
    assert run.counted.agent_seconds.median == 40 and run.counted.total_seconds.p95 == 60


def test_percentiles_and_sums_are_of_what_is_known() -> None:
    found = spread([None, *map(float, range(101)), float("nan")])
    assert (found.known, found.total, found.median, found.p95) == (101, 5050, 50, 95)
    assert spread([None]).total is None and spread([None]).known == 0
    assert spread([3.0]).p95 == 3.0


def test_modes_can_be_chosen_and_an_unknown_one_is_refused() -> None:
    (group,) = tally(clean([1, 0]), names=["raw-old", "training"]).groups
    assert [figures.mode for figures in group.modes] == ["raw-old", "training"]
    assert tables(group)["tasks"].title == "Tasks, by the mode raw-old"
    with pytest.raises(UsageError, match="unknown mode"):
        tally(clean([1]), names=["mean"])
    assert tally([]).groups == ()


def test_the_json_has_the_contract_first_and_reads_back() -> None:
    found = json.loads(json.dumps(as_json(tally([*RUN, *AGAIN], PLAN)), allow_nan=False))
    assert found["v"] == 1 and found["merge"] == "latest-valid" and len(found["modes"]) == len(MODES)
    first = found["modes"][0]
    assert list(first)[:9] == [
        "mode", "numerator", "denominator", "value", "excluded", "se_within", "se_across", "ci95", "pass_at",
    ]  # fmt: skip
    assert (first["mode"], first["numerator"], first["denominator"]) == ("infra-excluded", 53, 85)
    assert first["excluded"] == {"infrastructure/sandbox": 2} and first["missing"] == 2
    assert first["se_within"] is None and first["undefined"]["se_within"]
    assert first["pass_at"] == {"1": [pytest.approx(53 / 85), 85]} and first["rule"]
    (group,) = found["groups"]
    assert "modes" not in group and group["replaced"] == 2 and group["spent"]["cost_usd"]["known"] == 71 + 2
    assert {notice["code"] for notice in group["notices"]} == {"merge.inferred"}


def test_different_agents_have_figures_of_their_own_each_named() -> None:
    found: Any = as_json(tally([*clean([1, 1]), *clean([0, 0], agent="codex")], names=["raw-old"]))
    assert [(mode["agent"], mode["value"]) for mode in found["modes"]] == [("codex", 0.0), ("terminus-2", 1.0)]
    assert [notice["code"] for notice in found["notices"]] == ["merge.groups"]


def test_text_fits_eighty_columns_and_says_each_rule_and_reason(run: GroupTally) -> None:
    found = tables(run)
    assert list(found) == [name for name in TABLES if name != "pass_at"]  # single attempts have nothing beyond k = 1
    text = to_text(found.values())
    assert max(map(cell_len, text.splitlines())) <= 80
    flat = " ".join(text.split())
    for mode in MODES.values():
        assert mode.rule in flat
    assert "infra-excluded 53 85 62.35 % 51.7 to 71.9 % 2 95.51 %" in flat
    assert "all modes: no error within tasks: every task has one attempt only." in flat
    assert "circuit-fibsqrt 0 0 - infrastructure/sandbox 40.0 s" in flat
    assert "a mean is - where the mode leaves out every attempt of the task: 2 here." in flat
    assert "cost all tries 73 $40.50" in flat and "agent time counted 87 58 m 00 s 40.0 s 40.0 s" in flat


def test_pass_at_k_has_its_table_with_the_tasks_behind_it() -> None:
    trials = [judged(f"t{i}", C.COMPLETED, float(k < i), at=10 * i + k) for i in range(4) for k in range(3)]
    (group,) = tally(trials, names=["training"]).groups
    rows = rows_of(tables(group)["pass_at"])
    assert [row["k"] for row in rows] == ["1", "2", "3"] and {row["tasks"] for row in rows} == {"4"}
    assert [float(row["pass_at"]) for row in rows] == pytest.approx([0.5, (2 / 3 + 2) / 4, 0.75])
    assert [float(row["pass_all"]) for row in rows] == pytest.approx([0.5, (1 / 3 + 1) / 4, 0.25])


def test_csv_keeps_numbers_whole_and_undefined_cells_empty(run: GroupTally) -> None:
    rows = rows_of(tables(run)["figures"])
    assert float(rows[0]["value"]) == 53 / 85 and rows[0]["numerator"] == "53.0"
    assert float(rows[0]["ci95_low"]) == pytest.approx(0.517, abs=5e-4)
    assert rows_of(tables(run)["errors"])[0]["se_within"] == ""
    usage = {(row["what"], row["trials"]): row for row in rows_of(tables(run)["usage"])}
    assert usage["cost", "all tries"]["sum"] == "40.5" and usage["cost", "all tries"]["unit"] == "usd"
    assert usage["agent time", "counted"]["sum"] == "3480.0"
    notices = rows_of(tables(run)["notices"])
    assert notices[0]["code"] == "merge.inferred" and notices[0]["text"].startswith("job /jobs/two has no lineage")


def test_a_tally_without_anything_counted_still_has_its_tables() -> None:
    (group,) = tally(sandbox_failures("ab"), names=["infra-excluded"]).groups
    text = " ".join(to_text(tables(group).values()).split())
    assert "infra-excluded 0 0 - - 2 0.00 %" in text
    assert "infra-excluded: no value: nothing is counted." in text


def test_hostile_names_are_harmless_in_every_form() -> None:
    trial = judged(HOSTILE, C.COMPLETED, 1.0, agent=HOSTILE, name="n", job="j")
    (group,) = tally([trial, judged("u", C.UNREADABLE, None, "corrupt", agent=HOSTILE)]).groups
    found = tables(group)
    text = to_text(found.values())
    assert "\x1b" not in text and "owned" not in text and max(map(cell_len, text.splitlines())) <= 80
    marked = to_markdown(found.values())
    assert "\x1b" not in marked
    (line,) = [line for line in marked.splitlines() if "C calc" in line and line.startswith("|")]
    assert line.replace("\\|", "").count("|") == len(found["tasks"].columns) + 1 and "\\<b\\>" in line
    (row,) = [row for row in rows_of(found["tasks"]) if "calc" in row["task"]]
    assert row["task"].startswith("'=cmd")
    assert "unknown" in heading(msgspec.structs.replace(group, agent=""))


@pytest.mark.parametrize(
    ("value", "kind", "shown"),
    [
        (None, Kind.SHARE, "-"), (0.623529, Kind.SHARE, "62.35 %"), (0.0416, Kind.POINTS, "±4.16"),
        ((0.01, 0.115), Kind.RANGE, "1.0 to 11.5 %"), (59.94, Kind.SECONDS, "59.9 s"),
        (3599.6, Kind.SECONDS, "1 h 00 m"), (905.0, Kind.SECONDS, "15 m 05 s"), (11160.0, Kind.SECONDS, "3 h 06 m"),
        (5_680_000, Kind.COUNT, "5,680,000"), (1.25, Kind.SCORE, "1.25"), (12.5, Kind.DOLLARS, "$12.50"),
        ("", Kind.TEXT, ""), ("a\x1b[31mb", Kind.TEXT, "ab"),
    ],
)  # fmt: skip
def test_values_are_written_with_their_units(value: Any, kind: Kind, shown: str) -> None:
    assert written(value, kind) == shown


def test_wide_texts_give_way_before_numbers() -> None:
    columns = (Column("task", "task"), Column("why", "why"), Column("n", "n", Kind.COUNT))
    table = Table(name="t", title="T", columns=columns, rows=(("x" * 30, "任" * 60, 123456789),))
    lines = to_text([table]).splitlines()
    assert max(map(cell_len, lines)) == 80 and lines[-1].endswith("…  123,456,789")
    assert lines[-1].startswith("x" * 30 + "  任")


def test_a_hundred_thousand_trials_are_one_row_each() -> None:
    def stream(number: int) -> Iterator[Judged]:
        for i in range(number):
            yield judged(
                f"t{i % 500}",
                C.AGENT_TIMEOUT,
                float(i % 2),
                at=float(i),
                error="E",
                agent_version=str(i % 3),
                message=f"{i}" + "x" * 5000,
            )

    number = 20_000
    tracemalloc.start()
    try:
        tally(stream(number), names=["infra-excluded"])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak / number < 2500  # bytes; the records would take more than 5,000
