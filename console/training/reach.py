"""Whether sandboxes elsewhere can reach an address, as far as the address itself tells."""

from __future__ import annotations

import ipaddress
from typing import NamedTuple

from console.findings import ERROR, WARNING

_PRIVATE = [
    *("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7"),
    *("100.64.0.0/10",),  # carriers' and VPNs' (RFC 6598)
]
_NETWORKS = [ipaddress.ip_network(network) for network in _PRIVATE]
_LOCAL_NAMES = (".local", ".localdomain", ".lan", ".internal", ".intranet", ".home.arpa", ".ts.net")


class Doubt(NamedTuple):
    """Why an address may not do: a level of `console.findings`, and the reason as it follows the address."""

    level: str
    why: str


def reach_doubt(host: str, kind: str, *, own_cloud: bool = False) -> Doubt | None:
    """What speaks against sandboxes on other machines reaching `host`; None when nothing does.

    A name is not resolved: what it means here need not be what it means there.

    Args:
        host: a name or an address, IPv6 with or without brackets.
        kind: of the environment, for the message.
        own_cloud: the sandboxes may run in the operator's own network, so that private addresses may do.
    """
    bare = host.strip().strip("[]").rstrip(".").lower()
    gone = f"cannot be reached from {kind} sandboxes"
    if bare == "localhost" or bare.endswith(".localhost"):
        return Doubt(ERROR, gone)
    try:
        address = ipaddress.ip_address(bare.partition("%")[0])
    except ValueError:
        return _of_name(bare, kind, own_cloud)
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    if address.is_loopback or address.is_unspecified:
        return Doubt(ERROR, gone)
    if address.is_link_local or address.is_multicast:
        return Doubt(ERROR, f"{gone}: it is meaningful on one network segment only")
    if any(address in network for network in _NETWORKS):
        shared = address in _NETWORKS[-1]
        what = "of a carrier's or VPN's network (100.64.0.0/10)" if shared else "of a private network"
        return _private(f"is an address {what}", kind, own_cloud)
    return None


def _of_name(name: str, kind: str, own_cloud: bool) -> Doubt | None:
    if not name:
        return Doubt(ERROR, f"cannot be reached from {kind} sandboxes")
    if name.endswith(".invalid"):
        return Doubt(ERROR, "is a placeholder: no name under .invalid exists")
    if name.endswith(_LOCAL_NAMES) or "." not in name:
        return _private("is a name of a local network", kind, own_cloud)
    return None


def _private(what: str, kind: str, own_cloud: bool) -> Doubt:
    if own_cloud:
        return Doubt(WARNING, f"{what}: {kind} sandboxes reach it only if they run in that network")
    return Doubt(ERROR, f"{what}: {kind} sandboxes run elsewhere and cannot reach it")
