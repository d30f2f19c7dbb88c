"""What can be refused of the capture gateway's address before anything is started."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from urllib.parse import urlsplit

from console.capture.address import check_exposure, insecure_allowed, is_loopback
from console.capture.tls import server_context
from console.errors import UsageError
from console.findings import WARNING, Finding
from console.training.options import RunOptions

_HOST = re.compile(r"[A-Za-z0-9._-]+|\[?[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*\]?")


def capture_findings(options: RunOptions, env: Mapping[str, str]) -> Iterator[Finding]:
    """Findings about where the capture gateway listens, what it advertises, and its certificate."""
    harbor = options.harbor
    if not 0 <= harbor.listen_port <= 65535:
        yield Finding(
            code="capture.port",
            object="harbor.listen_port",
            message=f"must be from 0 to 65535, it is {harbor.listen_port}",
            remedy="0 takes any that is free",
        )
    yield from _advertised(options)
    certificate, key = harbor.tls_certificate, harbor.tls_key
    if (certificate is None) is not (key is None):
        missing = "harbor.tls_key" if key is None else "harbor.tls_certificate"
        yield Finding(
            code="capture.tls",
            object=missing,
            message="is missing: TLS needs a certificate and its key",
            remedy="give both or neither",
        )
        return
    try:
        if certificate is not None and key is not None:
            server_context(certificate, key)
    except UsageError as problem:
        yield finding_of("capture.tls", problem)
    try:
        allowed = insecure_allowed(harbor.allow_insecure, env)
        check_exposure(harbor.listen_host, tls=certificate is not None, allowed=allowed)
    except UsageError as problem:
        yield finding_of("capture.insecure", problem)


async def preflight_listening(options: RunOptions) -> list[Finding]:
    """Whether the capture gateway can listen where it is to; the port is free again afterwards.

    Nothing is said of values that are refused whatever machine this is.
    """
    from console.capture.listener import check_address

    harbor = options.harbor
    if not 0 <= harbor.listen_port <= 65535 or not harbor.listen_host.strip():
        return []
    try:
        await check_address(harbor.listen_host, harbor.listen_port)
    except UsageError as problem:
        return [finding_of("capture.listen", problem)]
    return []


def _advertised(options: RunOptions) -> Iterator[Finding]:
    harbor, url = options.harbor, options.harbor.advertised_url
    if url is None:
        host = harbor.advertised_host.strip()
        if host and not _HOST.fullmatch(host):
            yield Finding(
                code="capture.advertised",
                object="harbor.advertised_host",
                message=f"{host} is not a host name or address alone",
                remedy="give a port, scheme or path with harbor.advertised_url instead",
            )
        return
    parts = urlsplit(url)
    if "harbor.advertised_host" in options.given:
        yield Finding(
            code="capture.advertised",
            object="harbor.advertised_url",
            message="replaces harbor.advertised_host, which is given too",
            remedy="remove one of the two",
        )
    if parts.username is not None or parts.query or parts.fragment:
        yield Finding(
            code="capture.advertised",
            object="harbor.advertised_url",
            message="agents append a path to it: it can have no user, query or fragment",
            remedy="give scheme, host, port and path only",
        )
    if harbor.listen_port == 0:
        yield Finding(
            code="capture.any_port",
            level=WARNING,
            object="harbor.listen_port",
            message="is any free port, which what stands behind harbor.advertised_url cannot know",
            remedy="set it",
        )
    if parts.scheme == "http" and harbor.tls_certificate is not None and not is_loopback(parts.hostname or ""):
        yield Finding(
            code="capture.advertised",
            level=WARNING,
            object="harbor.advertised_url",
            message="is http while the capture gateway speaks TLS",
            remedy="advertise https, unless something in between speaks TLS with the gateway",
        )


def reach_host(options: RunOptions) -> str:
    """The host that agents are told, for checks whether they can reach it."""
    url = options.harbor.advertised_url
    return options.harbor.advertised_host if url is None else (urlsplit(url).hostname or "")


def of_advertised_url(finding: Finding) -> Finding | None:
    """A finding about reach as it reads when a whole URL is advertised; None when it does not apply then.

    What stands behind such a URL may well reach this machine by its loopback address.
    """
    if finding.code in ("trial.unreachable", "trial.container_loopback"):
        if finding.object == "harbor.listen_host":
            return None
        return Finding(
            code=finding.code,
            level=finding.level,
            object="harbor.advertised_url",
            message=finding.message,
            remedy="give an address that the sandboxes can reach",
        )
    return finding


def finding_of(code: str, problem: UsageError) -> Finding:
    """A finding from a message of the form `object: what is wrong; remedy`."""
    name, _, rest = str(problem).partition(": ")
    message, _, remedy = rest.partition("; ")
    return Finding(code=code, object=name, message=message, remedy=remedy)
