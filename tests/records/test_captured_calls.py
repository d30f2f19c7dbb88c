"""Readers of captured calls: whole records only, wherever a file ends or is damaged, in each of its forms."""

from __future__ import annotations

import math
import os
from array import array
from pathlib import Path

import msgspec
import pytest
import zstandard
from capture_files import CallsFile
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from console.capture.sealing import seal_file
from console.errors import RecordingError
from console.records import capture_frames, capture_streams
from console.records.capture_format import (
    Delivered,
    Intent,
    KeptMessage,
    Opened,
    Outcome,
    Refusal,
    Sealed,
    SegmentLine,
    ids_bytes,
    ids_of,
    logprobs_of,
)
from console.records.capture_paths import earlier_trial_files
from console.records.captured_calls import CapturedTrialFile, find_trial_file, trial_files
from console.records.token_check import check_tokens


def opened(path: Path) -> CapturedTrialFile:
    file = CapturedTrialFile(path)
    file.refresh()
    return file


def numbers(file: CapturedTrialFile) -> list[tuple[int, bool]]:
    return [(call.intent.call, call.answered) for call in file]


def sealed(file: CallsFile) -> Path:
    path = file.path.with_name(file.path.name + ".zst")
    seal_file(file.path, path, file.path.stat().st_size)
    return path


def test_calls_are_joined_and_prompts_are_built(tmp_path):
    made = CallsFile(tmp_path, policy_version=4, model="m")
    first = made.call([("user", "hi")], "there", prompt=[1, 2], tokens=[5, 6], logprobs=[-1.0, -2.0])
    second = made.call([("tool", "out")], "done", prompt=[3], tokens=[7], logprobs=[0.0], status="length")
    fork = made.call(prompt=[9], parent=first, reason="rewritten", prompt_tokens=5)
    late = made.begin(prompt=[4])
    lost = made.begin()
    made.end(lost, status="backend", error="gone")
    made.write(Delivered(call=1), Refusal(reason="budget", message="no more"), Refusal(reason="budget"))
    file = opened(made.path)
    assert (file.key, file.step, file.opened.policy_version, len(file), file.answered) == ("s0.g0.t0.y0", 0, 4, 5, 3)
    assert numbers(file) == [(0, True), (1, True), (2, True), (3, False), (4, False)]
    assert [file.call(n).delivered for n in range(3)] == [1, 2, 1] and file.node(second).intent.call == 1
    assert file.prompt(first) == array("i", [1, 2]) and file.prompt(second) == array("i", [1, 2, 5, 6, 3])
    assert file.prompt(fork) == array("i", [1, 2, 5, 6, 9])
    whole = file.segment([first, second])
    assert list(whole.tokens_T) == [1, 2, 5, 6, 3, 7] and list(whole.mask_T) == [0, 0, 1, 1, 0, 1]
    assert list(whole.logprobs_T) == [0, 0, -1, -2, 0, 0]
    assert [one.node for one in file.open_calls()] == [late.node]
    assert file.refused == {"budget": 2} and [one.message for one in file.refusals()] == ["no more"]
    assert file.sealed is None and file.torn == 0 and file.damage == "" and file.complete
    assert [segment.nodes for segment in file.segments()] == [[first, second], [fork]]
    with pytest.raises(RecordingError, match="does not extend"):
        file.segment([second, fork])
    with pytest.raises(RecordingError, match="there is no call nope"):
        file.prompt("nope")


@pytest.mark.parametrize("chunk", [1, 7, 1 << 20])
def test_a_file_cut_at_any_byte_of_its_last_record_has_all_before_it(tmp_path, chunk, monkeypatch):
    monkeypatch.setattr(capture_streams, "CHUNK", chunk)
    made = CallsFile(tmp_path)
    made.call([("user", "\xa4kind" * 5)], "one")
    before = made.path.stat().st_size
    made.write(Refusal(reason="request", message="z" * 200, ts=1.0))
    whole = made.path.read_bytes()
    for end in range(before, len(whole)):
        made.path.write_bytes(whole[:end])
        file = opened(made.path)
        assert (numbers(file), file.torn, file.damage, file.refused) == ([(0, True)], end - before, "", {}), end
    made.path.write_bytes(whole)
    assert opened(made.path).refused == {"request": 1}


def test_a_file_cut_within_its_head_has_nothing(tmp_path):
    made = CallsFile(tmp_path)
    whole = made.path.read_bytes()
    for end in range(len(whole)):
        made.path.write_bytes(whole[:end])
        file = opened(made.path)
        assert (len(file), file.opened, file.damage) == (0, None, "")
    file = CapturedTrialFile(made.path)
    made.path.write_bytes(whole[:10])
    assert file.refresh() and file.torn == 10
    made.path.write_bytes(whole)
    assert file.refresh() and file.opened is not None and file.torn == 0


def test_any_flipped_byte_is_noticed_and_what_lies_before_it_is_read(tmp_path):
    made = CallsFile(tmp_path)
    ends = [made.path.stat().st_size]
    for number in range(4):
        made.call([("user", f"q{number}")], "x" * 40)
        ends.append(made.path.stat().st_size)
    whole = bytearray(made.path.read_bytes())
    for at in range(capture_frames.HEADER_BYTES, ends[3]):
        whole[at] ^= 0x40
        made.path.write_bytes(whole)
        whole[at] ^= 0x40
        file = opened(made.path)
        assert file.damage.startswith(f"{made.path}: damaged at byte "), at
        where = int(file.damage.split("at byte ")[1].split(":")[0])
        assert where <= at and len(file) >= sum(end <= at for end in ends[1:])
        for call in file:
            assert call.outcome is None or call.outcome.reply == "x" * 40


def test_zeros_at_the_end_are_no_records(tmp_path):
    made = CallsFile(tmp_path)
    made.call()
    with made.path.open("ab") as file:
        file.write(bytes(4096))
    assert "a record of 0 bytes cannot be" in opened(made.path).damage


def test_a_length_that_cannot_be_is_not_allocated(tmp_path):
    made = CallsFile(tmp_path)
    with made.path.open("ab") as file:
        file.write(b"\xff\xff\xff\x7f" + bytes(100))
    assert "a record of 2147483647 bytes cannot be" in opened(made.path).damage


def test_what_an_agent_says_is_never_taken_for_a_record(tmp_path):
    made, other = CallsFile(tmp_path), CallsFile(tmp_path, "s0.g0.t1.y0")
    frame = other.frame(Refusal(reason="forged"))
    made.begin(prompt=(), stop=[], tools="x").messages.clear()
    before = made.path.stat().st_size
    with made.path.open("ab") as file:
        file.write(made.frame(Intent(call=1, node="n1", prompt_new=b"ab" * 100 + frame))[:-3])
    file = opened(made.path)
    assert file.damage == "" and file.torn == made.path.stat().st_size - before


@pytest.mark.parametrize(
    ("head", "says"),
    [
        (b"PK\3\4" + bytes(40), "no file of captured calls"),
        (b"QDCALLS\n" + b"\2\0\0\0" + bytes(40), "a later version"),
    ],
)
def test_other_files_are_refused_in_one_line(tmp_path, head, says):
    path = CallsFile(tmp_path).path
    path.write_bytes(head)
    with pytest.raises(RecordingError, match=says):
        opened(path)
    path.unlink()
    packed = path.with_name(path.name + ".zst")
    packed.write_bytes(zstandard.compress(head))
    with pytest.raises(RecordingError, match=says):
        opened(packed)


def test_records_of_a_kind_that_is_not_known_are_passed_over(tmp_path):
    made = CallsFile(tmp_path)

    class Later(capture_frames.Record, tag="later"):
        more: int = 1

    made.write(Later())
    made.call()
    assert opened(made.path).answered == 1 and opened(made.path).damage == ""


def test_a_record_that_cannot_be_understood_is_damage(tmp_path):
    made = CallsFile(tmp_path)
    before = made.path.stat().st_size

    class Wrong(capture_frames.Record, tag="outcome"):
        call: str = "x"

    made.write(Wrong())
    assert f"damaged at byte {before}: a record cannot be understood" in opened(made.path).damage


def test_looking_again_costs_what_is_new(tmp_path, monkeypatch):
    made = CallsFile(tmp_path)
    for _ in range(50):
        made.call([("user", "y" * 1000)])
    file = opened(made.path)
    read = []
    pread = os.pread
    monkeypatch.setattr(os, "pread", lambda *a: (lambda data: (read.append(len(data)), data)[1])(pread(*a)))
    before = made.path.stat().st_size
    made.call()
    file.refresh()
    assert file.answered == 51 and sum(read) <= made.path.stat().st_size - before + 100


def test_a_long_file_is_taken_in_parts(tmp_path, monkeypatch):
    monkeypatch.setattr(capture_streams, "CHUNK", 2000)
    made = CallsFile(tmp_path)
    for _ in range(20):
        made.call(reply="x" * 1000)
    file = CapturedTrialFile(made.path)
    file.refresh(3000)
    assert 0 < len(file) < 20 and not file.complete
    while not file.complete:
        file.refresh(3000)
    assert file.answered == 20


def test_a_sealed_file_has_the_same_and_its_damage_is_noticed(tmp_path, monkeypatch):
    monkeypatch.setattr("console.capture.sealing.BLOCK_BYTES", 3000)
    made = CallsFile(tmp_path)
    nodes = [made.call([("user", f"q{n}")], "x" * 500) for n in range(30)]
    made.seal(nodes)
    live = opened(made.path)
    whole = made.path.read_bytes()
    calls, prompt = list(live), live.prompt(nodes[-1])
    path = sealed(made)
    assert not made.path.exists()
    assert list(live) == calls  # which looks where it went
    file = opened(path)
    assert list(file) == calls and file.prompt(nodes[-1]) == prompt and file.sealed.calls == 30
    packed = path.read_bytes()
    parts = zstandard.ZstdDecompressor().stream_reader(packed, read_across_frames=True).read()
    assert parts == whole and packed.count(b"\x28\xb5\x2f\xfd") > 4
    middle = len(packed) // 2
    middle += packed[middle:].startswith(b"\x28\xb5\x2f\xfd")  # how long a block is differs; not between two of them
    for end in (len(packed) - 1, middle, 3):
        path.write_bytes(packed[:end])
        file = opened(path)
        assert f"{path}: a compressed block at byte " in file.damage and len(file) < 30
        assert list(file)[:-1] == calls[: max(0, len(file) - 1)]
    torn = bytearray(packed)
    torn[len(packed) // 2] ^= 1
    path.write_bytes(torn)
    assert opened(path).damage
    path.write_bytes(zstandard.compress(whole[:-9]))
    assert "a record is not whole" in opened(path).damage


def test_of_both_forms_the_sealed_one_counts_when_it_is_whole(tmp_path):
    made = CallsFile(tmp_path)
    nodes = [made.call(), made.call()]
    before = made.path.read_bytes()
    made.seal(nodes)
    path = sealed(made)
    made.path.write_bytes(before)
    assert trial_files(tmp_path) == [path] == [find_trial_file(tmp_path, "s0.g0.t0.y0")]
    for which in (path, made.path):
        file = opened(which)
        assert file.sealed is not None and file.shown_path == path
    packed = path.read_bytes()
    path.write_bytes(packed[:-5])
    file = opened(path)
    assert file.shown_path == made.path and file.sealed is None and file.answered == 2 and not file.damage
    assert file.refresh() and file.answered == 2
    made.path.unlink()
    assert file.refresh() and "compressed block" in file.damage
    path.write_bytes(packed)
    assert file.refresh() and file.sealed is not None and not file.damage
    path.unlink()
    assert not file.refresh() and len(file) == 0


def test_a_try_done_again_replaces_what_was_known(tmp_path):
    made = CallsFile(tmp_path)
    made.call(reply="old")
    file = opened(made.path)
    again = CallsFile(tmp_path)
    again.call(reply="new")
    file.refresh()
    assert [call.outcome.reply for call in file] == ["new"]


def test_an_index_of_a_file_that_was_replaced_says_so_and_not_that_it_is_damaged(tmp_path):
    made = CallsFile(tmp_path)
    nodes = [made.call(reply="old"), made.call(reply="old")]
    grows = opened(made.path)
    made.seal(nodes)
    path = sealed(made)
    whole = opened(path)
    path.rename(f"{made.path}.earlier-1.zst")
    CallsFile(tmp_path).call(reply="new, and longer than what was there before it", prompt=range(50))
    whole._stream._kept = (-1, b"")
    for file in (grows, whole):
        for node in nodes:
            with pytest.raises(RecordingError, match="the try was begun anew, and the file replaced"):
                file.node(node)
        assert file.refresh() and [call.outcome.reply[:3] for call in file] == ["new"] and file.earlier == 1
    short = opened(made.path)
    CallsFile(tmp_path)
    with pytest.raises(RecordingError, match="begun anew"):
        short.call(0)
    made = CallsFile(tmp_path)
    made.seal([made.call()])
    path = sealed(made)
    kept = opened(path)
    made = CallsFile(tmp_path)
    made.seal([made.call(reply="another")])
    path.unlink()
    assert sealed(made) == path
    kept._stream._kept = (-1, b"")
    with pytest.raises(RecordingError, match="begun anew"):
        kept.call(0)


def test_what_is_in_place_of_a_file_is_named(tmp_path):
    made = CallsFile(tmp_path)
    made.path.unlink()
    for make in (os.mkfifo, os.mkdir, lambda path: os.symlink("/dev/zero", path)):
        for path in (made.path, made.path.with_name(made.path.name + ".zst")):
            make(path)
            file = opened(path)
            assert file.damage == f"{path}: is not a file" and len(file) == 0
            path.rmdir() if path.is_dir() else path.unlink()
    assert not opened(made.path).damage


def test_files_that_were_set_aside_are_found(tmp_path):
    made = CallsFile(tmp_path)
    for name in ("", ".earlier-1", ".earlier-1.zst", ".earlier-2", ".earlier-10.zst", ".earlier-x", ".zst.earlier-1"):
        made.path.with_name(made.path.name + name).touch()
    found = earlier_trial_files(tmp_path)
    assert sorted((key, number, path.name[len(made.path.name) :]) for key, number, path in found) == [
        ("s0.g0.t0.y0", 1, ".earlier-1.zst"), ("s0.g0.t0.y0", 2, ".earlier-2"), ("s0.g0.t0.y0", 10, ".earlier-10.zst"),
    ]  # fmt: skip
    assert earlier_trial_files(tmp_path, 0) == found and earlier_trial_files(tmp_path, 1) == []


def test_records_that_contradict_each_other_are_told(tmp_path):
    made = CallsFile(tmp_path)
    made.call()
    made.write(Intent(call=0, node="other"), Outcome(call=0, status="stop"), Outcome(call=7, status="stop"))
    made.write(Delivered(call=9), Opened(key="x", step=1))
    assert len(opened(made.path).oddities) == 5 and len(opened(made.path)) == 1


def test_links_and_strange_names_are_no_files(tmp_path):
    made = CallsFile(tmp_path)
    made.path.unlink()
    made.path.symlink_to("/dev/zero")
    assert not opened(made.path).refresh()
    for name in ("a b.calls", "s0.calls.earlier-1", "s0.calls.zst.tmp", ".calls", "x.txt", "...calls"):
        (made.path.parent / name).write_bytes(b"")
    assert [path.name for path in trial_files(tmp_path)] == ["s0.g0.t0.y0.calls"]
    assert find_trial_file(tmp_path, "../../etc/passwd") is None and find_trial_file(tmp_path, "s9.g0.t0.y0") is None
    assert trial_files(tmp_path / "nothing") == [] == trial_files(tmp_path, 5)
    for key in ("s0.g0.t10.y0", "s0.g0.t9.y0", "s1.g0.t0.y0", "odd.calls"):
        CallsFile(tmp_path, key, step=int(key[1]) if key[1].isdigit() else 0)
    keys = [path.name.removesuffix(".calls") for path in trial_files(tmp_path)]
    assert keys == ["odd.calls", "s0.g0.t0.y0", "s0.g0.t9.y0", "s0.g0.t10.y0", "s1.g0.t0.y0"]
    assert find_trial_file(tmp_path, "odd.calls").name == "odd.calls.calls"


# --- round trip ---

texts = st.text(max_size=40)
ids = st.lists(st.integers(-(2**31), 2**31 - 1), max_size=20)
floats = st.lists(st.floats(width=32), max_size=20)
messages = st.lists(
    st.builds(KeptMessage, role=texts, text=texts, cut=st.integers(0, 10**9)), max_size=3
)  # fmt: skip
records = st.one_of(
    st.builds(Intent, call=st.integers(0, 10**6), node=texts, parent=texts, prompt_new=ids.map(ids_bytes),
              temperature=st.floats(allow_nan=False), seed=st.none() | st.integers(0, 2**63 - 1), messages=messages,
              stop=st.lists(texts, max_size=2)),
    st.builds(Outcome, call=st.integers(0, 10**6), status=texts, tokens=ids.map(ids_bytes), reply=texts,
              pieces=st.binary(max_size=20), malformed=st.booleans()),
    st.builds(Refusal, reason=texts, message=texts, ts=st.floats(allow_nan=False)),
    st.builds(Delivered, call=st.integers(0, 10**6)),
    st.builds(Sealed, calls=st.integers(0, 99), excluded=st.dictionaries(texts, st.integers(0, 9), max_size=3),
              segments=st.lists(st.builds(SegmentLine, nodes=st.lists(texts, max_size=3)), max_size=2)),
)  # fmt: skip


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(made=st.lists(records, max_size=12), chunk=st.integers(1, 400))
def test_records_come_back_as_they_were(tmp_path, made, chunk):
    file = CallsFile(tmp_path)
    file.write(*made)
    stream = capture_streams.PlainStream(file.path)
    seed = capture_frames.header_seed(file.path.read_bytes())
    for size in (chunk, 1 << 20):
        capture_streams.CHUNK, kept = size, capture_streams.CHUNK
        try:
            cut = capture_frames.Cut(seed, capture_frames.HEADER_BYTES)
            back = [capture_frames.decode(payload) for _, payload in stream.frames(cut, 1 << 30)]
        finally:
            capture_streams.CHUNK = kept
        assert back[1:] == made and cut.rest == 0


@given(values=floats, numbers=ids)
def test_arrays_come_back_as_they_were(values, numbers):
    from console.records.capture_format import logprobs_bytes

    back = logprobs_of(logprobs_bytes(values))
    assert all(a == b or (math.isnan(a) and math.isnan(b)) for a, b in zip(back, values, strict=True))
    assert list(ids_of(ids_bytes(numbers))) == numbers
    with pytest.raises(ValueError, match="bytes length"):
        ids_of(b"abc")


# --- the check ---


def good(tmp_path: Path, key: str = "s0.g0.t0.y0") -> tuple[CallsFile, list[str]]:
    made = CallsFile(tmp_path, key)
    return made, [made.call(), made.call(prompt=[4]), made.call(prompt=[5, 6], status="length")]


def problems(made: CallsFile) -> str:
    return "\n".join(check_tokens(opened(made.path)))


def test_a_good_file_has_no_problems(tmp_path):
    made, nodes = good(tmp_path)
    side = made.call(parent="", reason="system", prompt_tokens=3)
    failed = made.begin()
    made.end(failed, status="client")
    assert problems(made) == ""
    made.seal(nodes, calls=4, excluded={"aux": 1}, excluded_nodes={"aux": [side]})
    assert problems(made) == ""
    assert check_tokens(opened(sealed(made))) == []


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"parent": "n9x00000000"}, "which is not there before it"),
        ({"prompt_tokens": 99}, "was sent 99 tokens, and its chain has"),
        ({"tokens": [1, 2, 3]}, "3 ids and 2 log-probs"),
        ({"logprobs": [-1.0, math.nan]}, "not finite, or above zero"),
        ({"logprobs": [-1.0, 0.01]}, "not finite, or above zero"),
        ({"tokens": [1, -1]}, "ids below zero"),
        ({"pieces": ["a"]}, "texts of 1 tokens, and 2"),
    ],
)
def test_a_call_that_is_wrong_is_told(tmp_path, fields, says):
    made, _ = good(tmp_path)
    made.call(**fields)
    assert says in problems(made)


def test_an_extended_call_that_failed_is_told(tmp_path):
    made, _ = good(tmp_path)
    failed = made.begin()
    made.end(failed, status="backend")
    made.call(parent=failed.node)
    assert "which was not answered" in problems(made)


@pytest.mark.parametrize(
    ("seal", "says"),
    [
        (lambda n: Sealed(calls=3, segments=[SegmentLine(nodes=n), SegmentLine(nodes=n[:1])]), "is a target 2 times"),
        (lambda n: Sealed(calls=3, segments=[SegmentLine(nodes=n[:2])]), "is neither trained nor left out"),
        (lambda n: Sealed(calls=2, segments=[SegmentLine(nodes=n)]), "counts 2 answered calls, and there are 3"),
        (lambda n: Sealed(calls=3, segments=[SegmentLine(nodes=[*n, "n7x0"])]), "n7x0 is trained and is not there"),
        (lambda n: Sealed(calls=3, segments=[SegmentLine(nodes=[n[1], n[0], n[2]])]), "does not begin with all of"),
        (lambda n: Sealed(calls=3, segments=[SegmentLine(nodes=n), SegmentLine(nodes=[])]), "has no calls"),
        (
            lambda n: Sealed(calls=3, segments=[SegmentLine(nodes=n)], excluded_nodes={"aux": [n[0]]}),
            "is left out 1 times, and a target 1 times",
        ),
        (
            lambda n: Sealed(calls=3, segments=[SegmentLine(nodes=n)], excluded={"aux": 1}),
            "1 calls are left out as aux, and 0 are named",
        ),
    ],
)
def test_a_seal_that_is_wrong_is_told(tmp_path, seal, says):
    made, nodes = good(tmp_path)
    made.write(seal(nodes))
    assert says in problems(made)


def test_a_sealed_trial_has_no_open_calls_and_trains_no_failed_ones(tmp_path):
    made, nodes = good(tmp_path)
    failed = made.begin()
    made.end(failed, status="backend")
    made.begin()
    made.seal([*nodes, failed.node], calls=3)
    assert "has no outcome, and the trial is sealed" in problems(made)
    assert f"{failed.node} is trained and was not answered" in problems(made)


def test_a_damaged_file_is_a_problem(tmp_path):
    made, _ = good(tmp_path)
    data = bytearray(made.path.read_bytes())
    data[len(data) // 2] ^= 1
    made.path.write_bytes(data)
    assert "damaged at byte" in problems(made)
    assert msgspec.json.encode(check_tokens(opened(made.path)))
