"""The machine, as it is and as it should not be."""

from __future__ import annotations

from pathlib import Path

import pytest

from console.doctor import checks_host as checks
from console.doctor.case import Case, this_host
from console.doctor.checks_options import preflight
from console.training.options import parse

GIB = 2**30


def meminfo(gib: float) -> str:
    return f"MemTotal:       99999999 kB\nMemFree: 12 kB\nMemAvailable: {int(gib * GIB / 1024)} kB\n"


@pytest.mark.parametrize(
    ("system", "level"), [("linux", "ok"), ("darwin", "note"), ("win32", "error"), ("freebsd14", "error")]
)
def test_systems(host, levels, system: str, level: str) -> None:
    assert levels(checks.platform, host(system=system)) == [("host.platform", level)]


@pytest.mark.parametrize(
    ("available", "group", "level"),
    [
        (8.0, {}, "ok"),
        (3.9, {}, "warning"),
        (1.4, {}, "error"),
        (64.0, {"box": (4 * GIB, 3 * GIB)}, "error"),
        (64.0, {"box": ("max", 3 * GIB)}, "ok"),
        (64.0, {"": (6 * GIB, 3 * GIB), "box": (60 * GIB, 0)}, "warning"),
        (64.0, {"elsewhere": (GIB, GIB)}, "ok"),
    ],
)
def test_memory_of_machine_and_control_groups(host, levels, available: float, group: dict, level: str) -> None:
    files = {"proc/meminfo": meminfo(available), "proc/self/cgroup": "0::/box/inner\n"}
    for name, (limit, used) in group.items():
        files |= {f"sys/fs/cgroup/{name}/memory.max": f"{limit}\n", f"sys/fs/cgroup/{name}/memory.current": f"{used}\n"}
    assert levels(checks.memory, host(files)) == [("host.memory", level)]


def test_memory_that_no_file_tells_is_not_guessed(host, levels) -> None:
    assert levels(checks.memory, host()) == [("host.memory", "skipped")]
    assert levels(checks.memory, this_host()) != [("host.memory", "skipped")], "this machine tells"


def test_few_open_files(doctor) -> None:
    code, few = doctor("--only", "host.fds", before=("prlimit", "--nofile=200:200"))
    assert (code, few["host.fds"]["level"]) == (2, "error") and "hard limit of 200" in few["host.fds"]["remedy"]
    code, some = doctor("--only", "host.fds", before=("prlimit", "--nofile=400:2000"))
    assert (code, some["host.fds"]["level"]) == (0, "warning") and some["host.fds"]["remedy"] == "ulimit -n 768"
    code, enough = doctor("--only", "host.fds", before=("prlimit", "--nofile=1024:2000"))
    assert (code, enough["host.fds"]["level"]) == (0, "ok")


def test_open_files_are_counted_for_the_trials_of_the_options(tmp_path: Path) -> None:
    words = ["config.model_name=m", f"config.dataset_builder.tasks_dir={tmp_path}", f"config.log_path={tmp_path}/r"]
    words += ["harbor.trial_config=t.json", "config.dataset_builder.groups_per_batch=50"]
    words += ["config.learning_rate=1e-5", "config.max_tokens=100"]
    options = parse([*words, "config.dataset_builder.group_size=8", "harbor.max_parallel_trials_per_group=3"])
    assert Case(host=this_host(), options=options).trials == 150
    assert Case(host=this_host()).trials == 32


def test_a_small_disk(doctor, tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    script = f'mount -t tmpfs -o size=3m none {small} && exec "$@"'
    inside = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, "sh")
    code, told = doctor(
        "--only", "host.disk", before=inside, QUARTERDECK_STATE_DIR=str(small / "state"), TMPDIR=str(small)
    )
    assert (code, told["host.disk"]["level"]) == (2, "error") and "0.0 GB free" in told["host.disk"]["found"]


def test_a_disk_with_few_files_left(doctor, tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    script = f'mount -t tmpfs -o size=300g,nr_inodes=5000 none {small} && exec "$@"'
    inside = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, "sh")
    code, told = doctor("--only", "host.disk", before=inside, QUARTERDECK_STATE_DIR=str(small), TMPDIR=str(small))
    assert (code, told["host.disk"]["level"]) == (0, "warning") and "files can still be made" in told["host.disk"][
        "found"
    ]


def test_each_disk_is_told_once(host, tmp_path: Path) -> None:
    made = list(checks.disk(Case(host=host(env={"QUARTERDECK_STATE_DIR": str(tmp_path / "not" / "there")}))))
    devices = {tmp_path.stat().st_dev, Path("/tmp").stat().st_dev}
    assert len(made) == len(devices) and all(check.code == "host.disk" for check in made)


@pytest.mark.parametrize(
    ("limit", "used", "level"),
    [("max", 10, "ok"), (100_000, 10, "ok"), (1024, 100, "warning"), (4096, 4090, "warning")],
)
def test_processes_of_the_control_group(host, levels, limit: object, used: int, level: str) -> None:
    files = {
        "proc/self/cgroup": "0::/\n",
        "sys/fs/cgroup/pids.max": f"{limit}\n",
        "sys/fs/cgroup/pids.current": f"{used}",
    }
    assert levels(checks.processes, host(files, uid=0)) == [("host.processes", level)]


def test_few_processes_of_the_account(host, levels, doctor) -> None:
    inside = ("unshare", "--user", "--map-user=4321", "prlimit", "--nproc=300:300")
    assert doctor("--only", "host.processes", before=inside)[1]["host.processes"]["level"] == "warning"


SETTINGS = "/proc/sys/user/max_user_namespaces", "/proc/sys/kernel/apparmor_restrict_unprivileged_userns"


@pytest.mark.parametrize(
    ("values", "uid", "level"),
    [
        (("15000", "0"), 1000, "ok"),
        (("0", "0"), 1000, "warning"),
        (("0", "0"), 0, "warning"),
        (("15000", "1"), 1000, "warning"),
        (("15000", "1"), 0, "ok"),
    ],
)
def test_settings_that_forbid_user_namespaces(host, levels, values: tuple[str, str], uid: int, level: str) -> None:
    files = {path: f"{value}\n" for path, value in zip(SETTINGS, values, strict=True)}
    assert levels(checks.userns, host(files, uid=uid)) == [("host.userns", level)]


def test_settings_that_are_not_there_forbid_nothing(host, levels) -> None:
    assert levels(checks.userns, host()) == [("host.userns", "ok")]
    assert levels(checks.userns, host(system="darwin")) == [("host.userns", "skipped")]


@pytest.mark.parametrize(
    ("facts", "level"),
    [
        ({"synchronised": True}, "ok"),
        ({"synchronised": None}, "ok"),
        ({"synchronised": False}, "note"),
        ({"synchronised": True, "now": 1_000_000_000.0}, "error"),
    ],
)
def test_clocks(host, levels, facts: dict, level: str) -> None:
    assert levels(checks.clock, host(**facts)) == [("host.clock", level)]


def test_this_host_says_something_of_its_clock() -> None:
    """The kernel answers, or refuses as in a container; it does not fail."""
    assert this_host().synchronised in (True, False, None)
    assert [check.level for check in preflight(Case(host=this_host()))] == ["skipped"]
