"""What a viewer is shown of a trial: grows with the files, bounded, and never from outside the run."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest
from capture_files import CallsFile

from console.capture.sealing import seal_file
from console.control.messages import Ask, Content, encode
from console.journal import events as ev
from console.journal.writer import JournalWriter
from console.records import calls, capture_streams, content
from console.records.calls import FIELD_CHARS
from console.records.capture_format import KeptMessage, Opened, Refusal
from console.records.captured_calls import CapturedTrialFile
from console.records.content import ANSWER_BYTES, LINE_CHARS, TrialContent


class Run:
    """A run directory written by hand: a journal, captured calls, trial directories."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.writer = JournalWriter(path / "journal", snapshot=lambda: (b"{}", 0))
        (path / "trials").mkdir()
        self.content = TrialContent(path)
        self.files: dict[str, CallsFile] = {}

    def emit(self, event: ev.Event) -> None:
        self.writer.append(event)
        self.writer.sync()
        self.content._ends._steps.clear()  # looked at again at once, not a quarter of a second later

    def end(self, step=0, group=0, trial=0, try_=0, name: str | None = None) -> None:
        directory = None if name is None else str(self.path / "trials" / name)
        self.emit(
            ev.TrialFinished(step=step, group=group, trial=trial, try_=try_, outcome="completed", trial_dir=directory)
        )

    def file(self, key: str = "s0.g0.t0.y0") -> CallsFile:
        if key not in self.files:
            self.files[key] = CallsFile(self.path, key)
        return self.files[key]

    def log(self, key: str = "s0.g0.t0.y0", **fields) -> None:
        number = self.file(key).number
        given = {"messages": [("user", f"say {number}")], "reply": f"said {number}", "logprobs": [-0.5, -1e-06]}
        given |= {"pieces": ["sa", f"id {number}"] if "reply" not in fields else []}
        self.file(key).call(**(given | fields))

    def again(self, key: str = "s0.g0.t0.y0") -> None:
        """A resumed run does the try once more."""
        number = 1
        while (aside := self.file(key).path.with_name(f"{key}.calls.earlier-{number}")).exists():
            number += 1
        self.files.pop(key).path.rename(aside)

    def trial_dir(self, name: str = "task__abc") -> Path:
        path = self.path / "trials" / name
        (path / "verifier").mkdir(parents=True)
        return path

    def ask(self, kind: str = "transcript", step=0, group=0, trial=0, **fields) -> Content:
        answer = self.content.answer(Ask(id="q", kind=kind, step=step, group=group, trial=trial, **fields))
        assert len(encode(answer)) < ANSWER_BYTES + 100_000
        return answer

    def all(self, kind: str, **fields) -> list:
        found, cursor = [], 0
        while True:
            page = self.ask(kind, cursor=cursor, **fields)
            found += page.turns or page.tokens or page.lines
            if not page.more:
                return found
            assert not page.over
            assert page.cursor > cursor
            cursor = page.cursor


@pytest.fixture
def run(tmp_path):
    made = Run(tmp_path)
    made.emit(ev.RunStarted(run_id="r"))
    yield made
    made.writer.close()


def said(answer) -> list[tuple[int, str, str]]:
    turns = answer.turns if isinstance(answer, Content) else answer
    return [(turn.call, turn.role, turn.text) for turn in turns]


def test_a_transcript_grows_while_the_trial_runs(run):
    answer = run.ask()
    assert (answer.turns, answer.over, answer.more) == ([], False, False) and "captured" in answer.note
    run.log()
    run.log("s0.g0.t1.y0", messages=[], reply="of another trial")
    first = run.ask()
    assert said(first) == [(0, "user", "say 0"), (0, "assistant", "said 0")]
    turn = first.turns[1]
    assert (turn.prompt_tokens, turn.sampled_tokens, turn.seconds, turn.ts) == (3, 2, 0.25, 5.0)
    assert (first.calls, first.over, first.note) == (1, False, "")
    again = run.ask(cursor=first.cursor)
    assert (again.turns, again.cursor) == ([], first.cursor)
    run.log()
    more = run.ask(cursor=first.cursor)
    assert said(more) == [(1, "user", "say 1"), (1, "assistant", "said 1")] and more.cursor > first.cursor
    run.end()
    assert run.ask(cursor=more.cursor).over
    assert said(run.ask(trial=1)) == [(0, "assistant", "of another trial")] and not run.ask(trial=1).over


def test_a_record_that_is_half_written_comes_when_it_is_whole(run):
    run.log()
    path = run.file().path
    whole = path.read_bytes()
    path.write_bytes(whole + whole[20:60])
    first = run.ask()
    assert first.calls == 1
    path.write_bytes(whole)  # the write failed and was taken back
    run.log(reply="other")
    assert said(run.ask(cursor=first.cursor))[-1] == (1, "assistant", "other")
    path.write_bytes(path.read_bytes() + whole[20:60])  # torn by a kill
    assert run.ask().calls == 2 and not run.ask().note


def test_small_pieces_of_a_file_give_the_same_index(run, monkeypatch):
    for number in range(30):
        run.log(f"s0.g0.t{number % 3}.y0", reply="x" * (number * 37))
    whole = [said(run.ask(trial=trial)) for trial in range(3)]
    for size in (1, 7, 300, 1000):
        monkeypatch.setattr(capture_streams, "CHUNK", size)
        run.content = TrialContent(run.path)
        assert [said(run.ask(trial=trial)) for trial in range(3)] == whole


def test_a_step_done_again_shows_its_last_time(run):
    run.log()
    run.log()
    cursor, tokens = run.ask().cursor, run.ask("tokens").cursor
    run.again()
    run.log(reply="anew")
    answer = run.ask()
    assert said(answer) == [(0, "user", "say 0"), (0, "assistant", "anew")] and answer.calls == 1
    assert said(run.ask(cursor=cursor)) == said(answer)
    assert run.ask(cursor=answer.cursor).turns == [] and answer.cursor > cursor
    assert len(run.ask("tokens", cursor=tokens).tokens) == 2 and run.ask("tokens").cursor > tokens
    run.again()
    run.log(reply="once more")
    assert said(run.ask(cursor=answer.cursor))[-1][2] == "once more"
    for _ in range(9):
        run.log()
    page = run.ask(cursor=answer.cursor, limit=4)
    assert [turn.call for turn in page.turns] == [0, 0, 1, 1] and not page.note


def test_nothing_moves_when_a_trial_is_sealed(run):
    for _ in range(3):
        run.log()
    before, tokens = run.ask(), run.ask("tokens")
    made = run.file()
    made.seal(["n0x0000abcd"], calls=3)
    seal_file(made.path, made.path.with_name(made.path.name + ".zst"), made.path.stat().st_size)
    assert run.ask(cursor=before.cursor).turns == [] and run.ask().turns == before.turns
    assert run.ask("tokens").tokens == tokens.tokens and run.ask().cursor == before.cursor


def test_calls_side_by_side_come_as_they_end_and_stay_where_they_are(run):
    made = run.file()
    slow = made.begin([("user", "slow")], parent="")
    quick = made.begin([("user", "quick")], parent="")
    made.end(quick, "quick is done")
    first = run.ask()
    assert said(first) == [(0, "user", "quick"), (0, "assistant", "quick is done")]
    made.end(slow, "slow is done")
    assert said(run.ask(cursor=first.cursor)) == [(1, "user", "slow"), (1, "assistant", "slow is done")]
    assert run.ask("tokens", call=1).call == 1 and run.ask().calls == 2


def test_what_went_wrong_stands_where_it_happened(run):
    run.log()
    made = run.file()
    failed = made.begin([("tool", "only here")])
    made.end(failed, status="backend", error="gone")
    made.write(*[Refusal(reason="overflow", message="prompt is too long", ts=9.0)] * 5)
    run.log(reply="after")
    assert said(run.ask())[2:] == [
        (1, "tool", "only here"), (1, "error", "backend: gone"), (1, "error", "overflow: prompt is too long"),
        (1, "user", "say 2"), (1, "assistant", "after"),
    ]  # fmt: skip
    assert run.ask().calls == 2
    assert [turn.text for turn in run.all("transcript", limit=1)] == [turn.text for turn in run.ask().turns]


def test_paging_gives_everything_once(run):
    for number in range(40):
        messages = [("tool", f"{number}.{k} " + "y" * 9000) for k in range(5)]
        run.log(messages=messages, reply="z" * 3000)
    turns = run.all("transcript", limit=13)
    assert len(turns) == 240 and [t.call for t in turns] == sorted(t.call for t in turns)
    assert [t.text.split()[0] for t in turns[:6]] == ["0.0", "0.1", "0.2", "0.3", "0.4", "z" * 3000]
    assert len(run.ask(limit=10**9).turns) < 40  # about 256 KB
    tail = run.ask(cursor=-1, limit=8)
    assert tail.turns[0].call == 38 and "38 earlier calls" in tail.note


def test_a_long_file_is_looked_through_in_several_goes(run, monkeypatch):
    monkeypatch.setattr(capture_streams, "CHUNK", 500)
    refresh = CapturedTrialFile.refresh
    monkeypatch.setattr(CapturedTrialFile, "refresh", lambda self, limit=1000: refresh(self, limit))
    for _ in range(20):
        run.log()
    run.end()
    first = run.ask()
    assert first.more and not first.over and "still being looked through" in first.note
    for _ in range(20):
        last = run.ask()
    assert len(last.turns) == 40 and last.over and not last.more


def test_an_answer_reads_so_much_at_most(run, monkeypatch):
    monkeypatch.setattr(content, "READ_BYTES", 5000)
    for _ in range(10):
        run.log(reply="x" * 2000)
    page = run.ask()
    assert page.more and len(page.turns) == 6
    assert len(run.all("transcript")) == 20


def test_long_and_strange_fields_are_cut_and_carried(run):
    wild = "\x1b]0;evil\x07\u202e" + "\x00" * 50_000
    run.log(messages=[KeptMessage(role="r" * 1000, text=wild, cut=7)], reply="é" * 100_000, reply_cut=5)
    user, assistant = run.ask().turns
    assert user.text == wild[:FIELD_CHARS] and user.cut == len(wild) - FIELD_CHARS + 7 and len(user.role) == 40
    assert len(assistant.text) == FIELD_CHARS and assistant.cut == 100_000 - FIELD_CHARS + 5


def test_calls_without_their_text_have_numbers_only(run):
    run.log(messages=[], reply="", pieces=[], ts=0.0)
    (turn,) = run.ask().turns
    assert (turn.role, turn.text, turn.sampled_tokens, turn.ts) == ("assistant", "", 2, None)
    assert "without their text" in run.ask().note
    assert [t.text for t in run.ask("tokens").tokens] == ["", ""]


def test_tokens_of_a_call(run):
    run.log()
    pieces = [f"<{i}>" for i in range(500)]
    run.log(tokens=range(500), logprobs=[-i / 8 for i in range(500)], pieces=pieces, reply="".join(pieces))
    first = run.ask("tokens", limit=100)
    assert (first.call, first.calls, first.more, len(first.tokens)) == (1, 2, True, 100)
    assert (first.tokens[7].id, first.tokens[7].text, first.tokens[7].logprob) == (7, "<7>", -0.875)
    run.log()  # the last call is another one now; the cursor stays with its own
    assert run.ask("tokens", cursor=first.cursor, limit=50).tokens[0].id == 100
    assert [t.id for t in run.all("tokens", call=1, limit=77)] == list(range(500))
    tail = run.ask("tokens", call=1, cursor=-1, limit=5)
    assert [t.id for t in tail.tokens] == [495, 496, 497, 498, 499] and tail.over
    assert "call 9 was not captured" in run.ask("tokens", call=8).note
    run.log(pieces=["only one"])
    assert [t.text for t in run.ask("tokens").tokens] == ["", ""]
    run.log(reply="abc", pieces=["a", "b"])
    assert [t.text for t in run.ask("tokens").tokens] == ["", ""]
    run.log(reply="ab", pieces=["ab", ""], end="<|im_end|>")
    assert [t.text for t in run.ask("tokens").tokens] == ["ab", "<|im_end|>"]
    run.log(reply="abc", pieces=["ab", "cde"], reply_cut=2)
    assert [t.text for t in run.ask("tokens").tokens] == ["ab", "c"]
    run.log(reply="abc", tokens=[1, 2, 3], logprobs=[0.0, -1.0, -2.0], pieces=["a", "bc"])
    assert [t.text for t in run.ask("tokens").tokens] == ["", "", ""]


def test_the_last_try_is_meant_by_minus_one(run):
    run.log("s0.g0.t0.y0")
    run.end(try_=0)
    run.log("s0.g0.t0.y1", reply="second")
    answer = run.ask(try_=-1)
    assert (answer.try_, said(answer)[-1][2], answer.over) == (1, "second", False)
    assert run.ask(try_=0).over


def test_old_steps_and_steps_done_again_are_found_in_the_journal(run):
    for step in range(4):
        run.end(step, name=f"old{step}__a")
        run.emit(ev.StepFinished(step=step))
    run.emit(ev.RunStarted(run_id="r", resumed_from=2))
    for step in (2, 3):
        run.end(step, name=f"new{step}__a")
        run.emit(ev.StepFinished(step=step))
    for name in ("old1__a", "old2__a", "new2__a"):
        run.trial_dir(name).joinpath("trial.log").write_text(f"log of {name}\n")
    run.content = TrialContent(run.path)
    assert run.ask("log", step=1).lines == ["log of old1__a"]
    assert run.ask("log", step=2).lines == ["log of new2__a"] and run.ask("log", step=2).over
    assert run.ask("log", step=7).note


def test_the_directory_of_a_running_trial_bears_its_key(run):
    for name in ("task__s0.g0.t1.y0-x1", "task__s0.g0.t11.y0-x1", "task__s0.g0.t1.y01-x1", "task__as0.g0.t1.y0"):
        run.trial_dir(name).joinpath("trial.log").write_text(name + "\n")
    assert run.ask("log", trial=1).lines == ["task__s0.g0.t1.y0-x1"]
    assert "no files" in run.ask("log", trial=2).note


def test_nothing_follows_when_the_engine_has_ended(run):
    run.log()
    assert not run.ask().over
    run.emit(ev.RunFinished(status="stopped", exit_code=3))
    assert run.ask().over and run.ask("log").over
    run.emit(ev.RunStarted(run_id="r", resumed_from=0))
    assert not run.ask().over


def test_a_log_is_followed_by_lines(run):
    path = run.trial_dir("t__s0.g0.t0.y0-a") / "trial.log"
    path.write_bytes(b"one\ntwo\r\nhal")
    first = run.ask("log")
    assert first.lines == ["one", "two"]
    path.write_bytes(b"one\ntwo\r\nhalf\nthree")
    assert run.ask("log", cursor=first.cursor).lines == ["half"]
    run.end(name="t__s0.g0.t0.y0-a")
    assert run.ask("log", cursor=first.cursor).lines == ["half", "three"] and run.ask("log").over


def test_a_huge_log_without_lines_is_bounded_and_its_end_can_be_had(run):
    path = run.trial_dir() / "trial.log"
    path.write_bytes(b"\xff" * 3_000_000 + b"\nlast\n")
    run.end(name="task__abc")
    lines = run.all("log")
    assert lines[-1] == "last" and all(len(line) < LINE_CHARS + 100 for line in lines)
    assert "characters left out" in lines[0] and lines[0].startswith("\ufffd")
    with path.open("ab") as file:
        file.writelines(b"line %d\n" % number for number in range(50_000))
    tail = run.ask("log", cursor=-1, limit=200)
    assert "earlier bytes are left out" in tail.lines[0] and tail.lines[1].startswith("line ")
    assert len(run.all("log")) > 50_000


def test_verifier_output_comes_with_its_files_tests_first(run):
    directory = run.trial_dir()
    (directory / "verifier/a-report.txt").write_text("report\n")
    (directory / "verifier/test-stdout.txt").write_text("1 passed\n")
    (directory / "verifier/reward.txt").write_text("1")
    (directory / "steps/second/verifier").mkdir(parents=True)
    (directory / "steps/second/verifier/test-stdout.txt").write_text("2 passed\n")
    run.end(name="task__abc")
    wanted = ["== verifier/test-stdout.txt ==", "1 passed", "== verifier/a-report.txt ==", "report"]
    wanted += ["== verifier/reward.txt ==", "1", "== steps/second/verifier/test-stdout.txt ==", "2 passed"]
    assert run.ask("verifier").lines == wanted == run.all("verifier", limit=1)


def test_while_the_tests_run_their_output_is_followed(run):
    verifier = run.trial_dir("t__s0.g0.t0.y0-a") / "verifier"
    (verifier / "a-report.txt").write_text("report\n")
    assert run.ask("verifier").lines == [] and "has not run yet" in run.ask("verifier").note
    (verifier / "test-stdout.txt").write_text("1 passed\n")
    first = run.ask("verifier")
    assert first.lines == ["== verifier/test-stdout.txt ==", "1 passed"]
    (verifier / "test-stdout.txt").write_text("1 passed\n2 passed\n")
    run.end(name="t__s0.g0.t0.y0-a")
    rest = run.ask("verifier", cursor=first.cursor)
    assert rest.lines == ["2 passed", "== verifier/a-report.txt ==", "report"] and rest.over


def test_a_result_is_pretty_and_has_no_secrets(run):
    result = {
        "trial_name": "t",
        "config": {"agent": {"env": {"OPENAI_API_KEY": "abcdef", "MODE": "fast"}, "kwargs": {"max_tokens": 5}}},
        "url": "https://ada:hunter2@host/x",
        "message": "Authorization: Bearer abcdefghijk and sk-abcdefghijklmnop",
        "keywords": ["plain"],
        "odd": "\ud800",
    }
    (run.trial_dir() / "result.json").write_text(json.dumps(result))
    run.end(name="task__abc")
    answer = run.ask("result")
    text = "\n".join(answer.lines)
    for secret in ("abcdef", "hunter2", "abcdefghijk", "sk-abc"):
        assert secret not in text
    for plain in ('"MODE": "fast"', '"max_tokens": 5', '"plain"', "@host/x"):
        assert plain in text
    assert answer.over and run.all("result", limit=3) == answer.lines
    (run.path / "trials/task__abc/result.json").write_text('{"half": ')
    assert "not JSON" in run.ask("result").note


def outside(tmp_path: Path) -> Path:
    secret = tmp_path.parent / f"{tmp_path.name}-outside"
    (secret / "verifier").mkdir(parents=True)
    for name in ("trial.log", "result.json", "verifier/test-stdout.txt"):
        (secret / name).write_text('"SECRET"\n')
    return secret


@pytest.mark.parametrize("trick", ["link to dir", "link to file", "fifo", "directory", "device", "recorded elsewhere"])
def test_nothing_outside_the_run_is_ever_read(run, tmp_path, trick):
    secret = outside(tmp_path)
    name = "task__abc"
    if trick == "link to dir":
        (run.path / "trials" / name).symlink_to(secret)
    elif trick != "recorded elsewhere":
        directory = run.trial_dir(name)
        for file in ("trial.log", "result.json", "verifier/test-stdout.txt"):
            if trick == "link to file":
                (directory / file).symlink_to(secret / file)
            elif trick == "fifo":
                os.mkfifo(directory / file)
            elif trick == "directory":
                (directory / file).mkdir()
            elif trick == "device":
                (directory / file).symlink_to("/dev/zero")
    run.end(name=name)
    if trick == "recorded elsewhere":
        for where in (str(secret), "..", "/", f"{run.path}/trials/../../{secret.name}", f"{run.path}/trials/.."):
            run.emit(ev.TrialFinished(step=0, group=0, trial=0, outcome="completed", trial_dir=where))
            for kind in ("log", "result", "verifier"):
                assert "SECRET" not in str(run.ask(kind)) and "not in the run directory" in run.ask(kind).note
    for kind in ("log", "result", "verifier"):
        answer = run.ask(kind)
        assert "SECRET" not in str(answer) and answer.lines == [] and answer.note


def test_captured_calls_that_are_a_link_are_not_followed(run):
    run.file().path.unlink()
    run.file().path.symlink_to("/dev/zero")
    assert run.ask().turns == [] and run.ask().note == f"{run.file().path}: is not a file"


def test_damage_is_told_and_what_lies_before_it_is_shown(run):
    run.log()
    whole = len(run.file().path.read_bytes())
    run.log()
    run.log()
    data = bytearray(run.file().path.read_bytes())
    data[whole + 20] ^= 1
    run.file().path.write_bytes(data)
    assert said(run.ask())[-1] == (0, "assistant", "said 0") and f"damaged at byte {whole}" in run.ask().note
    run.file().path.write_bytes(b"something else that lies there")
    assert "no file of captured calls" in run.ask().note


def test_records_that_contradict_each_other_cost_only_themselves(run):
    run.log()
    run.file().write(Opened(key="x", step=9), *[Refusal(reason="\x1b" * 99, message="")] * 3)
    run.file().number = 0
    run.log(reply="a number that is there already")
    run.file().number = 5
    run.log()
    assert said(run.ask())[-1] == (1, "assistant", "said 5") and run.ask().calls == 2


@pytest.mark.parametrize("where", [{"step": -1}, {"group": -1}, {"trial": -5}, {"step": 10**12}])
def test_impossible_places_are_answered(run, where):
    assert run.ask(**where).over and "no such trial" in run.ask(**where).note


def test_odd_numbers_in_a_question_do_no_harm(run):
    run.log()
    run.trial_dir().joinpath("trial.log").write_text("x\n")
    run.end(name="task__abc")
    for kind in ("transcript", "tokens", "verifier", "log", "result"):
        for fields in ({"cursor": 2**62}, {"cursor": -(2**62)}, {"limit": 0}, {"limit": -9}, {"try_": 10**9}):
            answer = run.ask(kind, **fields)
            assert answer.kind == kind and answer.cursor >= 0
            assert len(answer.turns) + len(answer.tokens) + len(answer.lines) <= 200
        for call in (10**15, -7):
            assert run.ask(kind, call=call).kind == kind


def test_a_run_without_a_journal_still_shows_what_was_captured(tmp_path):
    CallsFile(tmp_path).call(reply="hello")
    answer = TrialContent(tmp_path).answer(Ask(id="q", kind="transcript", step=0, group=0, trial=0))
    assert said(answer) == [(0, "assistant", "hello")]


def test_many_trials_and_threads_share_few_indexes(run, monkeypatch):
    monkeypatch.setattr(calls, "FILES_INDEXED", 5)
    for step in range(3):
        for number in range(60):
            run.log(f"s{step}.g0.t{number % 20}.y0")
    failures = []

    def look(trial: int) -> None:
        for step in (0, 1, 2, 0):
            if len(run.ask(step=step, trial=trial).turns) != 6:
                failures.append((step, trial))

    threads = [threading.Thread(target=look, args=(trial % 4,)) for trial in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == [] and len(run.content._calls._tries) == 5


@pytest.mark.parametrize("kind", ["transcript", "tokens"])
def test_calls_whose_file_is_gone_are_not_said_to_have_never_been(run, kind):
    run.log()
    run.log("s0.g0.t1.y0")
    run.end()
    assert run.ask(kind).note == ""
    run.file().path.unlink()
    assert run.ask(kind).note == "there is no file of this try's calls: none were captured, or it is gone"


def test_damage_is_told_with_the_tokens_too(run):
    run.log()
    run.log()
    run.end()
    whole = run.file().path.read_bytes()
    run.file().path.write_bytes(whole[:40] + bytes([whole[40] ^ 1]) + whole[41:])
    assert "damaged at byte" in run.ask("tokens").note
