"""Where sandboxes run: bubblewrap, Docker, E2B."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as Late
from pathlib import Path

from console.doctor.case import Case
from console.doctor.report import Check, Question
from console.errors import UsageError
from console.training.preflight import BWRAP
from console.training.trial_config import environment_of, load_trial_config

BUBBLEWRAP = Question("sandbox.bubblewrap", "demo and the bundled trial files run agents in bubblewrap sandboxes")
DOCKER = Question(
    "sandbox.docker", "Harbor's docker sandboxes need the docker command, its compose plugin and a daemon"
)
E2B_KEY = Question("sandbox.e2b_key", "E2B takes no request without a key")
E2B = Question("sandbox.e2b", "what runs on the account already counts towards the plan's limit")

_E2B_KEY = re.compile(r"e2b_[0-9a-f]{40}")
_PLUGINS = (
    "usr/libexec/docker/cli-plugins", "usr/local/libexec/docker/cli-plugins", "usr/lib/docker/cli-plugins",
    "usr/local/lib/docker/cli-plugins",
)  # fmt: skip
ASK_SECONDS = 2.0
E2B_SECONDS = 20.0
_PAGES = 20


def environment_kind(case: Case) -> str | None:
    """What the trial file asks for; None without options, or when the file cannot be read."""
    if case.options is None:
        return None
    try:
        kind = environment_of(load_trial_config(case.options.harbor.trial_config))
    except UsageError:
        return None
    return "bubblewrap" if kind == BWRAP else kind


def bubblewrap(case: Case) -> Iterator[Check]:
    """Starts a sandbox, runs a command in it and takes it down again."""
    kind = environment_kind(case)
    if kind is not None and kind != "bubblewrap":
        yield BUBBLEWRAP.skipped(f"the trial file asks for {kind}")
        return
    from console.trials.bwrap_check import check_bubblewrap

    problems = check_bubblewrap()
    if not problems:
        yield BUBBLEWRAP.ok("a sandbox was made, used and removed")
        return
    found, _, remedy = problems[0].partition("; ")
    told = BUBBLEWRAP.error if kind == "bubblewrap" else BUBBLEWRAP.warning
    yield told(found, remedy or "pip install 'quarterdeck[engine]' brings it")


def docker(case: Case) -> Iterator[Check]:
    """The command, its plugin, and a daemon that answers on its socket."""
    kind = environment_kind(case)
    asked = kind == "docker"
    if kind is not None and not asked:
        yield DOCKER.skipped(f"the trial file asks for {kind}")
        return
    address = case.host.env.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    command = shutil.which("docker", path=case.host.env.get("PATH"))
    if not asked and command is None and "DOCKER_HOST" not in case.host.env:
        yield DOCKER.skipped("there is no docker command, and no options ask for it")
        return
    told = DOCKER.error if asked else DOCKER.note
    if command is None:
        yield told("there is no docker command", "install it with its compose plugin")
    elif not _has_compose(case):
        yield told("the docker command has no compose plugin", "install docker-compose-plugin")
    elif not address.startswith("unix://") and not case.live:
        yield DOCKER.skipped(f"DOCKER_HOST={address}: only --live asks other machines")
    elif problem := _ask_docker(address):
        yield told(f"{address}: {problem}", "start the daemon, or join the group docker and log in again")
    else:
        yield DOCKER.ok(f"the daemon at {address} answers")


def _has_compose(case: Case) -> bool:
    config = Path(case.host.env.get("DOCKER_CONFIG") or Path(case.host.env.get("HOME", "/")) / ".docker")
    places = [config / "cli-plugins", *(case.host.root / place for place in _PLUGINS)]
    return any(os.access(place / "docker-compose", os.X_OK) for place in places)


def _ask_docker(address: str) -> str:
    """What is wrong with the daemon at an address, empty for nothing."""
    import httpx

    scheme, _, rest = address.partition("://")
    try:
        if scheme == "unix":
            client, url = httpx.Client(transport=httpx.HTTPTransport(uds=rest), trust_env=False), "http://docker/_ping"
        elif scheme in ("tcp", "http", "https"):
            client, url = httpx.Client(trust_env=False), f"{'https' if scheme == 'https' else 'http'}://{rest}/_ping"
        else:
            return "is asked by the docker command only"
        with client:
            status = client.get(url, timeout=ASK_SECONDS).status_code
    except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
        return f"does not answer ({error})"
    return "" if status == 200 else f"answers with HTTP {status}"


def e2b_key(case: Case) -> Iterator[Check]:
    """Whether there is a key, whether it looks like one, and what else turns the SDK elsewhere."""
    env, kind = case.host.env, environment_kind(case)
    key = env.get("E2B_API_KEY", "")
    if kind is not None and kind != "e2b":
        yield E2B_KEY.skipped(f"the trial file asks for {kind}")
    elif not key.strip():
        told = E2B_KEY.error if kind == "e2b" else E2B_KEY.note
        yield told("E2B_API_KEY is not set", "export E2B_API_KEY=e2b_..., if sandboxes are to run there")
    elif env.get("E2B_DEBUG", "").lower() == "true":
        yield E2B_KEY.error(
            "E2B_DEBUG=true: the SDK then makes no sandboxes and talks to a port of this machine", "unset E2B_DEBUG"
        )
    elif not _E2B_KEY.fullmatch(key) and not env.get("E2B_API_URL"):
        yield E2B_KEY.warning(
            "E2B_API_KEY does not look like one (e2b_ and 40 hexadecimal digits)", "copy it again from the dashboard"
        )
    else:
        elsewhere = ", ".join(
            f"{name} is set" for name in ("E2B_API_URL", "E2B_SANDBOX_URL", "E2B_DOMAIN") if env.get(name)
        )
        yield E2B_KEY.ok(f"E2B_API_KEY is set{f'; {elsewhere}' if elsewhere else ''}")


def e2b(case: Case) -> Iterator[Check]:
    """Asks E2B, through its SDK, what runs on the account."""
    kind, key = environment_kind(case), case.host.env.get("E2B_API_KEY", "")
    if not case.live:
        yield E2B.skipped("only --live asks it")
    elif kind is not None and kind != "e2b":
        yield E2B.skipped(f"the trial file asks for {kind}")
    elif not key.strip():
        yield E2B.skipped("E2B_API_KEY is not set")
    else:
        yield _ask_e2b(case, key)


def _ask_e2b(case: Case, key: str) -> Check:
    pool = ThreadPoolExecutor(1)
    try:
        count, more = pool.submit(_count_e2b, case, key).result(E2B_SECONDS)
    except ImportError:
        return E2B.skipped("the package e2b is not installed")
    except Late:
        return E2B.error(f"no answer within {E2B_SECONDS:g} s", "look at the network and at status.e2b.dev")
    except Exception as error:
        # The SDK raises its own kinds and those of its transports; none of them quotes the key.
        refused = type(error).__name__ == "AuthenticationException"
        if refused:
            return E2B.error("the key is refused", "export the E2B_API_KEY of the right team")
        return E2B.error(f"cannot be asked: {type(error).__name__}: {error}".replace(key, "***"), "look at the network")
    finally:
        pool.shutdown(wait=False)
    found = f"{count}{' or more' if more else ''} sandboxes run on the account"
    if case.options is None:
        return E2B.ok(found)
    return E2B.ok(f"{found}, this run adds up to {case.trials}")


def _count_e2b(case: Case, key: str) -> tuple[int, bool]:
    from e2b import Sandbox

    pages = Sandbox.list(api_key=key, request_timeout=E2B_SECONDS / 2)
    count = 0
    for _ in range(_PAGES):
        count += len(pages.next_items())
        if not pages.has_next:
            return count, False
    return count, True
