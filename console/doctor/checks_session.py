"""What ends a run that nobody asked to end: log-outs, closed containers, batch jobs, lids, dropped lines."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime

from console.doctor.case import Case, Host
from console.doctor.report import Check, Question

LOGOUT = Question("host.logout", "a run goes on when its console is closed, unless the host ends what its user left")
CONTAINER = Question("host.container", "a container ends with its main process, and every run in it")
BATCH = Question("host.batch", "what a batch job started ends with the job")
SLEEP = Question("host.sleep", "a gateway ends the session of a client that sleeps, on Miles after 300 s")
SSH = Question("ssh.session", "a line drops; an engine does not care, a headless run that its command owns does")

_LOGIND_FILES = ("etc/systemd/logind.conf", "run/systemd/logind.conf", "usr/lib/systemd/logind.conf")
"""The first that exists counts; drop-ins come after it, by name, those of /etc before others of the same name."""
_DROP_INS = ("usr/lib/systemd/logind.conf.d", "run/systemd/logind.conf.d", "etc/systemd/logind.conf.d")
_SETTING = re.compile(r"^(#?)\s*(KillUserProcesses|KillOnlyUsers|KillExcludeUsers)\s*=\s*(.*?)\s*$", re.M)
_YES = ("1", "yes", "y", "true", "t", "on")
_SESSION_SCOPE = re.compile(r"/(session-[^/]+\.scope)")


def logout(case: Case) -> Iterator[Check]:
    """What logind does to the processes of a user who logs out, and where this process stands."""
    host = case.host
    if not host.has("/run/systemd/system"):
        yield LOGOUT.ok("no systemd here, so that nothing ends processes at log-out")
        return
    place = host.read("/proc/self/cgroup") or ""
    session = _SESSION_SCOPE.search(place)
    linger = host.has(f"/var/lib/systemd/linger/{host.user}")
    if session is not None:
        if not _killed_at_logout(host):
            yield LOGOUT.ok(f"{session[1]}: its processes are left alone at log-out")
            return
        first = "" if linger else "loginctl enable-linger, then "
        yield LOGOUT.warning(
            f"KillUserProcesses=yes: at log-out everything started in {session[1]} is killed, tmux and screen too",
            f"{first}start it with: systemd-run --user --scope quarterdeck train ...",
        )
    elif f"/user@{host.uid}.service" in place:
        if linger:
            yield LOGOUT.ok("this belongs to your user manager, which stays when you log out")
        else:
            yield LOGOUT.warning(
                "this belongs to your user manager, which ends with your last log-out, and all its processes with it",
                "loginctl enable-linger",
            )
    else:
        yield LOGOUT.ok("this belongs to no log-in session")


def _killed_at_logout(host: Host) -> bool:
    """As logind.conf(5) says; a setting that is commented out shows what was built in."""
    values = {"KillUserProcesses": "no", "KillOnlyUsers": "", "KillExcludeUsers": "root"}
    texts = [next((text for name in _LOGIND_FILES if (text := host.read(name)) is not None), "")]
    drop_ins = {path.name: path for place in _DROP_INS for path in (host.root / place).glob("*.conf")}
    for name in sorted(drop_ins):
        texts.append(host.read(str(drop_ins[name].relative_to(host.root))) or "")
    for text in texts:
        for hidden, name, value in _SETTING.findall(text):
            if not hidden or (value and text is texts[0]):
                values[name] = value
    only, excluded = values["KillOnlyUsers"].split(), values["KillExcludeUsers"].split()
    if host.user in excluded or (only and host.user not in only):
        return False
    return values["KillUserProcesses"].lower() in _YES


def container(case: Case) -> Iterator[Check]:
    """Whether this is a container."""
    host = case.host
    kind = next(
        (name for path, name in (("/.dockerenv", "Docker"), ("/run/.containerenv", "Podman")) if host.has(path)), ""
    )
    if "KUBERNETES_SERVICE_HOST" in host.env:
        kind = "Kubernetes"
    if not kind:
        yield CONTAINER.ok("this is no container")
        return
    main = (host.read("/proc/1/comm") or "").strip() or "unknown"
    yield CONTAINER.note(
        f"{kind}; its main process is {main}",
        "keep the container running apart from your shell, and config.log_path on a volume that outlives it",
    )


def batch(case: Case) -> Iterator[Check]:
    """Whether a batch system started this, and until when."""
    env = case.host.env
    name = next((name for name in ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "JOB_ID") if env.get(name)), None)
    if name is None:
        yield BATCH.ok("no batch job")
        return
    ends = env.get("SLURM_JOB_END_TIME", "")
    until = ""
    if ends.isdigit():
        hours = (int(ends) - case.host.now) / 3600
        until = f", which ends at {datetime.fromtimestamp(int(ends), UTC):%Y-%m-%d %H:%MZ}, in {max(0.0, hours):.1f} h"
    yield BATCH.note(
        f"batch job {env[name]}{until}", "set console.time_budget below what is left, so that the run stops in order"
    )


def sleep(case: Case) -> Iterator[Check]:
    """A battery is what a machine with a lid has."""
    supplies = case.host.root / "sys/class/power_supply"
    for supply in sorted(supplies.iterdir()) if supplies.is_dir() else ():
        path = str(supply.relative_to(case.host.root))
        kind, scope = ((case.host.read(f"{path}/{name}") or "").strip() for name in ("type", "scope"))
        if kind == "Battery" and scope != "Device":  # a mouse has one, too
            yield SLEEP.note(
                "this machine has a battery, so it may sleep when its lid is closed",
                "systemd-inhibit --what=sleep:handle-lid-switch quarterdeck attach keeps it awake while it is attached",
            )
            return
    yield SLEEP.ok("no battery: not a machine that sleeps when it is closed")


def ssh(case: Case) -> Iterator[Check]:
    """Whether this is a remote shell, and whether a multiplexer holds it."""
    env = case.host.env
    kept = next((name for name, key in (("tmux", "TMUX"), ("screen", "STY"), ("zellij", "ZELLIJ")) if env.get(key)), "")
    if not (env.get("SSH_CONNECTION") or env.get("SSH_TTY")):
        yield SSH.ok(f"no SSH session{f', inside {kept}' if kept else ''}")
    elif kept:
        yield SSH.ok(f"SSH, inside {kept}: what it shows goes on when the line drops")
    else:
        yield SSH.note(
            "SSH, outside tmux: consoles end with the line, and their runs go on (quarterdeck attach); a run with "
            "--headless or --plain ends with its command",
            "start it with --detach, or inside tmux",
        )
