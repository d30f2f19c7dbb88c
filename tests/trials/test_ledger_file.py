"""The ledger's file: what a view makes of it, and that a record is on the disk before whoever wrote it goes on."""

from __future__ import annotations

import asyncio
import os
import random
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from console.records.sandbox_ledger import (
    CUT_OFF,
    LEDGER,
    OPEN,
    Announced,
    Created,
    Failed,
    Gone,
    Kept,
    LedgerView,
    Left,
    Record,
    Removed,
    encode,
    read_entries,
)
from console.records.sandbox_prices import PRICES
from console.trials.ledger import LedgerError, LedgerWriter, append, is_alive, process_name

HOUR = 3600.0
E2B_HOUR = HOUR * (2 * PRICES["e2b"].vcpu_second + 1 * PRICES["e2b"].gib_second)


def announced(name: str, ts: float = 0.0, engine: str = "1-1", **kwargs: Any) -> Announced:
    given: dict[str, Any] = {"kind": "e2b", "cpus": 2, "memory_mb": 1024}
    return Announced(ts=ts, name=name, engine=engine, **(given | kwargs))


def view_of(tmp_path: Path, *records: Record, engine: str = "1-1") -> LedgerView:
    append(tmp_path / LEDGER, *records)
    view = LedgerView(tmp_path, engine)
    view.refresh()
    return view


def test_what_a_view_counts(tmp_path):
    view = view_of(
        tmp_path,
        *(announced(name, ts=10) for name in ("creating", "live", "left", "removed", "gone", "failed", "kept")),
        announced("old", ts=1, engine="7-7"),
        *(Created(ts=20, name=name, ids=[f"i-{name}"]) for name in ("live", "left", "removed", "gone", "kept", "old")),
        Left(ts=30, name="left", why="502"),
        Left(ts=31, name="old", why="502"),
        Removed(ts=30, name="removed"),
        Gone(ts=30, name="gone"),
        Failed(ts=30, name="failed", why="401"),
        Kept(ts=30, name="kept"),
    )
    assert (view.live, view.creating, view.left, view.orphaned, view.oldest) == (2, 1, ["left"], ["old"], 10)
    assert {entry.name for entry in view.open} == {"creating", "live", "left", "old"}
    unknown = LedgerView(tmp_path)
    unknown.refresh()
    assert set(unknown.orphaned) == {"creating", "live", "left", "old"} and unknown.live == 0
    append(tmp_path / LEDGER, Removed(ts=40, name="left"), Gone(ts=40, name="old"))
    view.refresh()
    assert (view.left, view.orphaned, view.live) == ([], [], 2)


def test_hours_and_cost(tmp_path):
    view = view_of(
        tmp_path,
        announced("done"), Created(ts=0, name="done"), Removed(ts=2 * HOUR, name="done"),
        announced("live"), Created(ts=HOUR, name="live"),
        announced("here", kind="bwrap"), Created(ts=0, name="here"),
        announced("asked for"),
    )  # fmt: skip
    now = 3 * HOUR
    assert view.hours(now) == pytest.approx(2 + 2 + 3)
    assert view.cost(now) == pytest.approx(4 * E2B_HOUR)
    assert view.cost(now, hourly=0.5) == pytest.approx(4 * 0.5), "a price given is of the rented ones"
    append(tmp_path / LEDGER, announced("other", kind="modal"), Created(ts=HOUR, name="other"))
    view.refresh()
    assert view.cost(now) is None, "no price is known of that kind"
    assert view.cost(now, hourly=0.5) == pytest.approx(6 * 0.5)
    append(tmp_path / LEDGER, Removed(ts=2 * HOUR, name="other"))
    view.refresh()
    assert view.cost(now) is None


def test_nothing_rented_has_no_cost(tmp_path):
    view = view_of(tmp_path, announced("here", kind="docker"), Created(ts=0, name="here"))
    assert view.cost(HOUR) is None and view.hours(HOUR) == 1


def test_an_orphan_costs_no_more_than_its_lease(tmp_path):
    view = view_of(
        tmp_path,
        announced("old", engine="7-7", lease=HOUR), Created(ts=0, name="old"),
        announced("later", ts=HOUR / 2, engine="7-7"),
    )  # fmt: skip
    assert view.hours(100 * HOUR) == pytest.approx(1.5), "the engine was heard of once more after half an hour"
    assert view.cost(100 * HOUR) == pytest.approx(1.5 * E2B_HOUR)


def test_torn_and_foreign_lines(tmp_path):
    path = tmp_path / LEDGER
    assert read_entries(path) == []
    view = LedgerView(tmp_path, "1-1")
    view.refresh()
    line = encode(announced("one"))
    path.write_bytes(line + b'{"k": "later", "ts": 1}\n\xff\n' + line.replace(b"one", b"two")[:-9])
    view.refresh()
    assert [entry.name for entry in view.open] == ["one"] and view.damaged == 2
    with path.open("ab") as file:
        file.write(line.replace(b"one", b"two")[-9:])
    view.refresh()
    assert [entry.name for entry in view.open] == ["one", "two"], "a line counts once it is whole"
    path.unlink()
    path.write_bytes(line.replace(b"one", b"new"))
    view.refresh()
    assert [entry.name for entry in view.open] == ["new"], "another file is another ledger"


def test_a_view_that_grows_equals_one_that_begins(tmp_path):
    rng = random.Random(7)
    path = tmp_path / LEDGER
    growing = LedgerView(tmp_path, "1-1")
    for now in range(300):
        name = f"n{rng.randrange(40)}"
        record = rng.choice([announced(name, now), Created(ts=now, name=name), Left(ts=now, name=name),
                             Removed(ts=now, name=name), Gone(ts=now, name=name),
                             Gone(ts=now, name=name, how=CUT_OFF)])  # fmt: skip
        with path.open("ab") as file:
            file.write(encode(record))
        if rng.random() < 0.3:
            growing.refresh()
    growing.refresh()
    fresh = LedgerView(tmp_path, "1-1")
    fresh.refresh()
    assert growing.open == fresh.open and growing.hours(400) == pytest.approx(fresh.hours(400))
    assert [e.name for e in fresh.open] == [e.name for e in read_entries(path) if e.state in OPEN]
    assert growing.cut_off == fresh.cut_off != []
    assert {e.name: e for e in fresh.cut_off} == {e.name: e for e in read_entries(path) if e.why == CUT_OFF}


async def test_a_record_is_synced_before_its_writer_goes_on(tmp_path, monkeypatch):
    order: list[str] = []
    sync, write = os.fdatasync, os.write

    def watched(fd: int) -> None:
        sync(fd)
        order.append("synced")

    def writing(fd: int, data: bytes) -> int:
        if b'"announced"' in data:
            order.append("written")
        return write(fd, data)

    monkeypatch.setattr(os, "fdatasync", watched)
    monkeypatch.setattr(os, "write", writing)
    writer = LedgerWriter(tmp_path / LEDGER)
    await writer.write(announced("one"))
    order.append("gone on")
    assert order == ["written", "synced", "gone on"]
    order.clear()
    await asyncio.gather(*(writer.write(announced(f"n{number}")) for number in range(64)))
    assert order.count("written") == 64 and order.count("synced") <= 4, "one sync for what comes together"
    assert order[-1] == "synced"
    await asyncio.to_thread(writer.close)
    assert len(read_entries(tmp_path / LEDGER)) == 65


async def test_a_ledger_that_cannot_be_written(tmp_path):
    (tmp_path / LEDGER).mkdir()
    writer = LedgerWriter(tmp_path / LEDGER)
    for _ in range(2):
        with pytest.raises(LedgerError, match="cannot be written: Is a directory"):
            await writer.write(announced("one"))
    await asyncio.to_thread(writer.close)


FILLING = """
import resource, sys
from pathlib import Path
from console.records.sandbox_ledger import Announced
from console.trials.ledger import LedgerError, _File
from console.records.sandbox_ledger import encode
path = Path(sys.argv[1])
file = _File(path)
lines = [encode(Announced(ts=n, name=f"n{n}", kind="bwrap")) for n in range(3)]
file.write(lines[:1])
limit = path.stat().st_size + 10
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
try:
    file.write(lines[1:2])
except LedgerError as error:
    print(error)
assert path.stat().st_size == limit, "half a line is there"
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
(file if sys.argv[2] == "same" else _File(path)).write(lines[2:])
"""


@pytest.mark.parametrize("again", ["same", "anew"])
def test_a_full_disk_tears_no_other_record(tmp_path, again):
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[1] == resource.RLIM_INFINITY
    command = [sys.executable, "-c", FILLING, str(tmp_path / LEDGER), again]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "cannot be written" in done.stdout
    assert [entry.name for entry in read_entries(tmp_path / LEDGER)] == ["n0", "n2"]


WRITING = """
import sys
from pathlib import Path
from console.records.sandbox_ledger import Announced
from console.trials.ledger import append
for number in range(200):
    append(Path(sys.argv[1]), Announced(ts=0, name=f"{sys.argv[2]}-{number}", kind="bwrap", where="x" * number))
"""


def test_several_processes_write_one_ledger(tmp_path):
    path = tmp_path / LEDGER
    writers = [subprocess.Popen([sys.executable, "-c", WRITING, str(path), str(n)]) for n in range(3)]
    assert [writer.wait() for writer in writers] == [0, 0, 0]
    view = LedgerView(tmp_path)
    view.refresh()
    assert len(view.open) == 600 and view.damaged == 0
    assert path.stat().st_mode & 0o777 == 0o600


def test_processes_have_names_that_no_other_has():
    child = subprocess.Popen(["sleep", "60"])
    name = process_name(child.pid)
    assert is_alive(name) and not is_alive(f"{child.pid}-1") and not is_alive("") and not is_alive("x-y")
    child.kill()
    child.wait()
    assert not is_alive(name) and process_name(child.pid) == ""
