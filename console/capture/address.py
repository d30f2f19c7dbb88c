"""Addresses of the capture gateway: who can reach one, how it stands in a URL, and when TLS may be left out."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from urllib.parse import urlsplit

from console.errors import UsageError

INSECURE_VARIABLE = "QUARTERDECK_ALLOW_INSECURE"
"""Set to 1, it says the same as harbor.allow_insecure=true, for command lines that must stay as they are documented."""


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address. A name other than localhost is taken to lead elsewhere."""
    bare = host.strip().strip("[]")
    if bare.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(bare).is_loopback
    except ValueError:
        return False


def in_url(host: str) -> str:
    """A host as it stands in a URL: IPv6 addresses in brackets."""
    bare = host.strip().strip("[]")
    return f"[{bare}]" if ":" in bare else bare


def prefix_of(url: str) -> str:
    """The path of an advertised URL, without a slash at its end; "" for none."""
    return urlsplit(url).path.rstrip("/")


def insecure_allowed(option: bool, env: Mapping[str, str]) -> bool:
    """Whether the capture gateway may be reached from other machines without TLS."""
    return option or env.get(INSECURE_VARIABLE, "").strip().lower() in ("1", "true", "yes")


def check_exposure(listen_host: str, *, tls: bool, allowed: bool) -> None:
    """Raise `UsageError` when other machines could reach the gateway without TLS and nobody said that they may."""
    if not (tls or allowed or is_loopback(listen_host)):
        raise UsageError(
            f"harbor.listen_host={listen_host}: other machines reach it without TLS, so tokens and prompts cross the "
            "network in clear; give harbor.tls_certificate and harbor.tls_key, or accept that with "
            f"harbor.allow_insecure=true or {INSECURE_VARIABLE}=1 in the environment"
        )
