"""What ends a run that nobody asked to end."""

from __future__ import annotations

import pytest

from console.doctor import checks_session as checks
from console.doctor.case import Case

SYSTEMD = {"run/systemd/system/.keep": ""}
SESSION = {"proc/self/cgroup": "0::/user.slice/user-1000.slice/session-7.scope\n"}
MANAGER = {"proc/self/cgroup": "0::/user.slice/user-1000.slice/user@1000.service/app.slice/tmux.scope\n"}
SERVICE = {"proc/self/cgroup": "0::/system.slice/cron.service\n"}
OLD_GROUPS = {"proc/self/cgroup": "4:memory:/x\n1:name=systemd:/user.slice/user-1000.slice/session-7.scope\n"}
LINGER = {"var/lib/systemd/linger/ada": ""}
CONF = "etc/systemd/logind.conf"
DROP = "etc/systemd/logind.conf.d"


def login(text: str) -> str:
    return f"[Login]\n{text}\n"


KILLS = {CONF: login("KillUserProcesses=yes")}


@pytest.mark.parametrize(
    ("files", "level"),
    [
        ({}, "ok"),
        (SYSTEMD | SERVICE | KILLS, "ok"),
        (SYSTEMD | SESSION, "ok"),
        (SYSTEMD | SESSION | {CONF: login("#KillUserProcesses=no")}, "ok"),
        (SYSTEMD | SESSION | {CONF: login("#KillUserProcesses=yes")}, "warning"),
        (SYSTEMD | SESSION | KILLS, "warning"),
        (SYSTEMD | OLD_GROUPS | KILLS, "warning"),
        (SYSTEMD | SESSION | KILLS | LINGER, "warning"),
        (SYSTEMD | SESSION | {CONF: login("KillUserProcesses=no")}, "ok"),
        (SYSTEMD | SESSION | {"usr/lib/systemd/logind.conf": login("KillUserProcesses = on ")}, "warning"),
        (SYSTEMD | SESSION | KILLS | {f"{DROP}/50.conf": login("KillUserProcesses=no")}, "ok"),
        (SYSTEMD | SESSION | KILLS | {f"{DROP}/50.conf": login("#KillUserProcesses=no")}, "warning"),
        (
            SYSTEMD | SESSION
            | {f"{DROP}/50.conf": login("KillUserProcesses=no"), f"{DROP}/60.conf": login("KillUserProcesses=1")},
            "warning",
        ),
        (
            SYSTEMD | SESSION | {f"{DROP}/50.conf": login("KillUserProcesses=no")}
            | {"run/systemd/logind.conf.d/50.conf": login("KillUserProcesses=yes")},
            "ok",
        ),
        (SYSTEMD | SESSION | {CONF: login("KillUserProcesses=yes\nKillExcludeUsers=root ada")}, "ok"),
        (SYSTEMD | SESSION | {CONF: login("KillUserProcesses=yes\nKillOnlyUsers=bob")}, "ok"),
        (SYSTEMD | SESSION | {CONF: login("KillUserProcesses=yes\nKillOnlyUsers=bob ada")}, "warning"),
        (SYSTEMD | MANAGER, "warning"),
        (SYSTEMD | MANAGER | LINGER, "ok"),
        (SYSTEMD | MANAGER | LINGER | KILLS, "ok"),
    ],
)  # fmt: skip
def test_what_a_log_out_does(host, levels, files: dict[str, str], level: str) -> None:
    assert levels(checks.logout, host(files)) == [("host.logout", level)]


def test_the_remedies_of_log_outs_can_be_typed(host) -> None:
    def remedy(files: dict[str, str]) -> str:
        (check,) = checks.logout(Case(host=host(files)))
        return check.remedy

    assert remedy(SYSTEMD | SESSION | KILLS) == (
        "loginctl enable-linger, then start it with: systemd-run --user --scope quarterdeck train ..."
    )
    assert remedy(LINGER) == "start it with: systemd-run --user --scope quarterdeck train ..."


def test_root_is_left_alone_unless_it_is_named(host, levels) -> None:
    files = SYSTEMD | {"proc/self/cgroup": "0::/user.slice/user-0.slice/session-1.scope\n"} | KILLS
    assert levels(checks.logout, host(files, user="root", uid=0)) == [("host.logout", "ok")]
    files |= {CONF: login("KillUserProcesses=yes\nKillExcludeUsers=")}
    assert levels(checks.logout, host(files, user="root", uid=0)) == [("host.logout", "warning")]


@pytest.mark.parametrize(
    ("files", "env", "named"),
    [
        ({}, {}, None),
        ({".dockerenv": "", "proc/1/comm": "bash\n"}, {}, "Docker; its main process is bash"),
        ({"run/.containerenv": ""}, {}, "Podman; its main process is unknown"),
        ({".dockerenv": ""}, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "Kubernetes; its main process is unknown"),
    ],
)
def test_containers(host, files: dict[str, str], env: dict[str, str], named: str | None) -> None:
    (check,) = checks.container(Case(host=host(files, env=env)))
    assert (check.level, check.found) == (("ok", "this is no container") if named is None else ("note", named))


def test_batch_jobs(host) -> None:
    def told(**env: str) -> tuple[str, str]:
        (check,) = checks.batch(Case(host=host(env=env)))
        return check.level, check.found

    assert told() == ("ok", "no batch job")
    assert told(SLURM_JOB_ID="77") == ("note", "batch job 77")
    assert told(SLURM_JOB_ID="77", SLURM_JOB_END_TIME=str(1_900_000_000 + 5400)) == (
        "note",
        "batch job 77, which ends at 2030-03-17 19:16Z, in 1.5 h",
    )
    assert told(PBS_JOBID="9.host", SLURM_JOB_END_TIME="soon") == ("note", "batch job 9.host")


POWER = "sys/class/power_supply"


@pytest.mark.parametrize(
    ("files", "level"),
    [
        ({}, "ok"),
        ({f"{POWER}/AC/type": "Mains\n"}, "ok"),
        ({f"{POWER}/AC/type": "Mains\n", f"{POWER}/BAT0/type": "Battery\n"}, "note"),
        ({f"{POWER}/hidpp_0/type": "Battery\n", f"{POWER}/hidpp_0/scope": "Device\n"}, "ok"),
    ],
)
def test_machines_with_a_lid(host, levels, files: dict[str, str], level: str) -> None:
    assert levels(checks.sleep, host(files)) == [("host.sleep", level)]


@pytest.mark.parametrize(
    ("env", "level"),
    [
        ({}, "ok"),
        ({"TMUX": "/tmp/tmux-1000/default,1,0"}, "ok"),
        ({"SSH_CONNECTION": "1.2.3.4 5 6.7.8.9 22"}, "note"),
        ({"SSH_TTY": "/dev/pts/3", "STY": "1.x"}, "ok"),
        ({"SSH_TTY": "/dev/pts/3", "TMUX": "x"}, "ok"),
    ],
)
def test_remote_shells(host, levels, env: dict[str, str], level: str) -> None:
    assert levels(checks.ssh, host(env=env)) == [("ssh.session", level)]
