"""One trial close up: the lines around what decided, in bounds and safe to paint."""

from __future__ import annotations

import os
import re
from pathlib import Path

import msgspec
import pytest
from harbor_jobs import HarborJob
from look_jobs import DEAD, KEY, NO_TOOLS, WORK
from look_stage import reader_of
from rich.cells import cell_len

from console.bench.model import Evidence
from console.records.harbor.evidence import COUNTED
from console.state.sanitize import sanitize
from console.tui.bench.close_up import close_up, place
from console.tui.bench.evidence import AROUND, LINE, Excerpt, excerpt, look_close
from console.tui.bench.reading import Seen, Survey
from console.tui.glyphs import UNICODE
from console.tui.text import plain


def seen_in(survey: Survey, task: str) -> Seen:
    return next(seen for seen in survey.side.trials if seen.task == task)


def text_of(seen: Seen, cells: int = 80) -> str:
    return "\n".join(plain(one) for one in close_up(seen, look_close(seen, None, None), UNICODE, False, False, cells))


def write(path: Path, lines: list[str]) -> Evidence:
    (path / "agent").mkdir(parents=True, exist_ok=True)
    (path / "agent" / "out.txt").write_text("\n".join(lines) + "\n")
    return Evidence(file="agent/out.txt")


@pytest.mark.parametrize(
    ("line", "first", "count", "at"), [(1, 1, 7, 0), (4, 1, 10, 3), (50, 44, 13, 6), (99, 93, 8, 6), (100, 94, 7, 6)]
)
def test_lines_around_the_one_that_decided(tmp_path: Path, line: int, first: int, count: int, at: int) -> None:
    write(tmp_path, [f"line {n}" for n in range(1, 101)])
    found = excerpt(tmp_path, Evidence(file="agent/out.txt", line=line))
    assert (found.first, len(found.lines), found.at) == (first, count, at)
    assert found.lines[found.at] == f"line {line}" and found.lines[0] == f"line {first}"


def test_a_line_that_is_not_there_any_more(tmp_path: Path) -> None:
    write(tmp_path, ["one", "two"])
    assert excerpt(tmp_path, Evidence(file="agent/out.txt", line=500)) == Excerpt("agent/out.txt", 494)
    assert excerpt(tmp_path, Evidence(file="agent/gone.txt", line=1)).lines == ()
    assert excerpt(tmp_path, Evidence(file="/etc/hostname", line=1)).lines == ()
    assert excerpt(tmp_path / "gone", Evidence(file="agent/out.txt", line=1)).lines == ()


def test_a_line_is_found_again_though_its_evidence_quotes_no_key(tmp_path: Path) -> None:
    write(tmp_path, [*(["x" * 900] * 40), "refused: sk-proj-abcdefghijklmnop1234 is no key"])
    found = excerpt(tmp_path, Evidence(file="agent/out.txt", text="refused: [redacted] is no key"))
    assert found.at >= 0 and found.lines[found.at] == "refused: [redacted] is no key"


def test_a_trial_without_a_result_has_the_agent_of_its_group(survey: Survey) -> None:
    seen = seen_in(survey, "task-17")
    group = msgspec.structs.replace(seen.row.group, agent="mixed")
    named = msgspec.structs.replace(seen, row=msgspec.structs.replace(seen.row, group=group))
    assert re.search(r"agent +mixed", text_of(named)) and not re.search(r"agent +mixed", text_of(seen))


def test_no_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x\n")
    (tmp_path / "trial" / "agent").mkdir(parents=True)
    os.symlink(tmp_path / "secret", tmp_path / "trial" / "agent" / "out.txt")
    assert excerpt(tmp_path / "trial", Evidence(file="agent/out.txt", line=1)).lines == ()
    assert excerpt(tmp_path / "trial", Evidence(file="../secret", line=1)).lines == ()


def test_long_lines_and_long_files_are_bounded(tmp_path: Path) -> None:
    write(tmp_path, ["a", "x" * 1_000_000, "c"])
    found = excerpt(tmp_path, Evidence(file="agent/out.txt", line=2))
    assert found.lines[1] == "x" * LINE + "…" and found.at == 1
    lines = [f"{n:>99}" for n in range(COUNTED // 100 + 5_000)]
    lines[-3] = "the end of it all"
    write(tmp_path, lines)
    found = excerpt(tmp_path, Evidence(file="agent/out.txt", text="the end of it all"))
    assert found.first is None and found.lines[found.at] == "the end of it all" and found.at == AROUND
    lost = excerpt(tmp_path, Evidence(file="agent/out.txt", text="never said"))
    assert lost.at == -1 and lost.lines[-2].strip() == str(len(lines) - 1)


def test_the_deciding_line_stands_in_the_page(survey: Survey) -> None:
    seen = seen_in(survey, "task-17")
    text = text_of(seen)
    assert "bad_reward/verifier_fault" in text and "confidence   medium" in text.replace("  high", "")
    assert "Evidence: verifier/test-stdout.txt:3" in text
    assert " > 3 /tests/test.sh: line 5: uvx: command not found" in text and "   4 end" in text
    assert "agent        2026-" in text and "60.0s" in text, "phases"
    assert f"Files below {seen.path}" in text and re.search(r"  verifier/test-stdout.txt  \d+ bytes", text)
    assert place(seen) == f"{seen.path}/verifier/test-stdout.txt:3"


def test_no_key_is_shown(survey: Survey) -> None:
    text = text_of(seen_in(survey, "task-19"))
    assert KEY not in text and "Incorrect API key provided: [redacted]" in text


def test_lines_of_ours_are_wrapped(survey: Survey) -> None:
    seen = seen_in(survey, "task-17")
    ours = text_of(seen, 60).split("\n Evidence")[0].split("\n")
    assert max(map(len, ours)) <= 60 and len(ours) > len(text_of(seen, 120).split("\n Evidence")[0].split("\n"))


NASTY = "ev\x1b[31mil\r\n\x07\x9b2J日本\u202e" + "e" + "\u0301" * 50


def test_hostile_texts_are_painted_as_what_they_are(tmp_path: Path) -> None:
    job = HarborJob(tmp_path / "a", agent=NASTY, model=f"m/{NASTY}", dataset=NASTY)
    job.trial(
        f"org/{NASTY}{'x' * 10_000}", name="t__1", error=("Sandbox\x1b[2JError", NASTY * 400),
        rewards={NASTY: 0.5, "b": 1},
        files={**WORK, "agent/out.txt": f"{NASTY}\n" * 50},
    )  # fmt: skip
    job.trial("half", result=False, error=DEAD)
    job.trial("broken", patch={"task_name": ["x"]})
    (job.trials[2] / "result.json").write_bytes(b"\xff\xfe{\x00")
    job.write()
    for seen in reader_of([job.path]).read().side.trials:
        lines = close_up(seen, look_close(seen, None, None), UNICODE, False, True, 80)
        for one in lines:
            text = plain(one)
            assert text == sanitize(text, limit=20_000) and cell_len(text) <= 2_400, ascii(text)


def test_a_trial_that_is_gone_is_an_answer(tmp_path: Path) -> None:
    job = HarborJob(tmp_path / "a")
    job.trial("x", 0.0, files=NO_TOOLS)
    job.write()
    (seen,) = reader_of([job.path]).read().side.trials
    (job.trials[0] / "result.json").unlink()
    text = text_of(seen)
    assert "unreadable" in text
