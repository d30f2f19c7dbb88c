"""Environment variables that decide where requests go and what they carry. Values of keys are never shown."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from urllib.parse import urlsplit
from urllib.request import proxy_bypass_environment  # type: ignore[attr-defined]  # typeshed lacks it

from console.doctor.case import Case
from console.doctor.report import Check, Question
from console.gateway.proxies import LOOPBACK

KEY = Question("env.tinker_key", "the SDK takes keys of two forms only, and the gateway tells clients apart by them")
BASE_URL = Question("env.tinker_url", "without config.base_url the SDK goes where this variable says")
PROXY = Question(
    "env.proxy", "gateways and sandbox providers are asked through a proxy, except those on this machine itself"
)
CERTIFICATES = Question("env.certificates", "a file of certificates that is not there breaks every https request")
TELEMETRY = Question("env.telemetry", "Harbor and the SDK report what they do to their makers unless told not to")
INSECURE = Question("env.insecure", "tokens and prompts then cross the network in clear")
CI = Question("env.ci", "CI systems kill a cancelled job within about 10 s, which no sandbox's removal fits in")

_KEY_FORMS = ("tml-", "eyJ")
_PROXIES = ("http_proxy", "https_proxy", "all_proxy")
_FILES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
_TELEMETRY = ("HARBOR_TELEMETRY", "TINKER_TELEMETRY")
_OFF = ("0", "false", "no", "off")


def tinker_key(case: Case) -> Iterator[Check]:
    """Whether there is a key, and whether it looks like one."""
    value = case.host.env.get("TINKER_API_KEY", "")
    if case.options is not None and case.options.embedded:
        yield KEY.ok("the embedded gateway takes any")
    elif not value.strip():
        told = KEY.error if case.options is not None else KEY.note
        yield told("TINKER_API_KEY is not set", "export TINKER_API_KEY=tml-...; demo needs none")
    elif re.search(r"\s", value):
        yield KEY.error("TINKER_API_KEY has a space or a line end in it", "export it again without")
    elif not value.startswith(_KEY_FORMS):
        yield KEY.error(
            f"TINKER_API_KEY begins with neither {' nor '.join(_KEY_FORMS)}",
            "export a key of that form; a gateway of your own takes any, as long as all clients of a tenant share it",
        )
    else:
        yield KEY.ok(f"TINKER_API_KEY is set ({len(value)} characters)")


def tinker_url(case: Case) -> Iterator[Check]:
    """Where the SDK goes by itself."""
    value = case.host.env.get("TINKER_BASE_URL", "")
    if not value:
        yield BASE_URL.ok("TINKER_BASE_URL is not set")
    elif case.options is not None and (case.options.embedded or case.options.value("config.base_url")):
        yield BASE_URL.ok("TINKER_BASE_URL is set, and the options name another gateway")
    else:
        yield BASE_URL.note(f"TINKER_BASE_URL={_place(value)}", "name the gateway in config.base_url, where it is kept")


def proxy(case: Case) -> Iterator[Check]:
    """Proxies, and whether the gateway is asked through one."""
    env = case.host.env
    proxies = {
        name.removesuffix("_proxy"): value for name in _PROXIES if (value := env.get(name) or env.get(name.upper()))
    }
    if not proxies:
        yield PROXY.ok("none is set")
        return
    proxies["no"] = env.get("no_proxy") or env.get("NO_PROXY") or ""
    named = ", ".join(f"{name}: {_place(value)}" for name, value in proxies.items() if name != "no")
    through = [host for host in _hosts(case) if not proxy_bypass_environment(host, proxies)]
    if through:
        yield PROXY.warning(
            f"{named}; {' and '.join(through)} would be asked through it",
            f"export NO_PROXY={','.join(through)}{',' + proxies['no'] if proxies['no'] else ''}, unless the proxy "
            "leads there",
        )
    else:
        yield PROXY.note(named, "" if case.options else "export NO_PROXY=GATEWAY_HOST, unless the proxy leads there")


def _hosts(case: Case) -> list[str]:
    """Hosts of gateways of the user's own; the hosted service is meant to be reached through a proxy."""
    if case.options is None or case.options.embedded:
        return []
    url = case.options.value("config.base_url")
    try:
        host = urlsplit(url).hostname if url else None
    except ValueError:
        return []
    return [host] if host and host not in LOOPBACK else []


def certificates(case: Case) -> Iterator[Check]:
    """Files that TLS libraries are told to read."""
    named = {name: value for name in _FILES if (value := case.host.env.get(name))}
    missing = [f"{name}={value}" for name, value in named.items() if not os.access(value, os.R_OK)]
    if missing:
        yield CERTIFICATES.error(f"{', '.join(missing)} cannot be read", "correct the path, or unset the variable")
    else:
        yield CERTIFICATES.ok(", ".join(named) + " can be read" if named else "the system's own are used")


def telemetry(case: Case) -> Iterator[Check]:
    """Whether somebody asked for what engines and runners switch off in any case."""
    on = [n for n in _TELEMETRY if (value := case.host.env.get(n, "")) and value.strip().lower() not in _OFF]
    if on:
        yield TELEMETRY.note(f"{' and '.join(on)} ask for it; engines and runners switch it off all the same")
    else:
        yield TELEMETRY.ok("off: engines and runners switch it off")


def insecure(case: Case) -> Iterator[Check]:
    """Whether the capture gateway may be reached without TLS."""
    from console.capture.address import INSECURE_VARIABLE, insecure_allowed

    if insecure_allowed(False, case.host.env):
        yield INSECURE.note(
            f"{INSECURE_VARIABLE} is set: the capture gateway may listen for other machines without TLS",
            "give harbor.tls_certificate and harbor.tls_key where the network is not yours",
        )
    else:
        yield INSECURE.ok("the capture gateway asks for TLS where other machines reach it")


def ci(case: Case) -> Iterator[Check]:
    """Whether this is a CI job."""
    env: Mapping[str, str] = case.host.env
    name = "GitHub Actions" if env.get("GITHUB_ACTIONS") else "CI" if env.get("CI", "").lower() in ("1", "true") else ""
    if name:
        yield CI.note(name, "add a last step that always runs: quarterdeck reap --all --yes")
    else:
        yield CI.ok("this is no CI job")


def _place(url: str) -> str:
    """An address without user and password."""
    try:
        parts = urlsplit(url if "//" in url else f"//{url}")
        port = f":{parts.port}" if parts.port else ""
        return f"{parts.scheme + '://' if parts.scheme else ''}{parts.hostname or '?'}{port}"
    except ValueError:
        return "an address that cannot be read"
