"""Proxies between us and a gateway: it is asked the way the SDK asks it, and what is on this machine is asked directly.

The SDK's transports take the proxies that the environment names, for loopback addresses too. A proxy is somewhere else,
as a rule, and cannot reach those: they are excepted before anything is sent.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from urllib.request import getproxies_environment, proxy_bypass_environment  # type: ignore[attr-defined]

from console.errors import UsageError

if TYPE_CHECKING:
    import httpx

LOOPBACK = ("localhost", "127.0.0.1", "::1")
_NAMES = ("http_proxy", "https_proxy", "all_proxy")


def except_loopback(env: MutableMapping[str, str]) -> None:
    """Add this machine's own addresses to the exceptions from its proxies, where it has any.

    Libraries differ in which case of the variable they read first: both get the same.
    """
    if not any(env.get(name) or env.get(name.upper()) for name in _NAMES):
        return
    given = env.get("no_proxy", ""), env.get("NO_PROXY", "")
    hosts = [host for text in given for host in (part.strip() for part in text.split(",")) if host]
    if "*" not in hosts:
        env["no_proxy"] = env["NO_PROXY"] = ",".join(dict.fromkeys([*hosts, *LOOPBACK]))


def proxy_of(url: str) -> str:
    """The variable that names the proxy through which `url` is asked, empty for none."""
    try:
        parts = urlsplit(url)
        host, scheme = parts.hostname or "", parts.scheme
    except ValueError:
        return ""
    proxies = getproxies_environment()
    if not host or host in LOOPBACK or proxy_bypass_environment(host, proxies):
        return ""
    return next((f"{name}_proxy" for name in (scheme, "all") if proxies.get(name)), "")


def gateway_client() -> httpx.AsyncClient:
    """A client that goes where the SDK goes: through the proxies, and with the certificates, that are set.

    Raises:
        UsageError: the variables that say so cannot be used. Their values, which may hold passwords, are not quoted.
    """
    import httpx

    try:
        return httpx.AsyncClient(trust_env=True)
    except (
        Exception
    ) as problem:  # httpx, ssl, a package that a kind of proxy needs: whatever it is, neither can the SDK
        names = ", ".join(sorted(f"{name}_proxy" for name in getproxies_environment())) or "SSL_CERT_FILE, SSL_CERT_DIR"
        raise UsageError(
            f"{names}: no connection can be made with what is set there ({type(problem).__name__}); "
            "correct the variable, or unset it"
        ) from None
