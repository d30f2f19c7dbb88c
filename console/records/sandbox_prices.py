"""What rented sandboxes cost, for estimates: list prices with their date, in one place.

Providers bill what was allocated, from creation to removal. Credits, discounts and minimum charges are not known here.
"""

from __future__ import annotations

from typing import NamedTuple


class Price(NamedTuple):
    """USD for each vCPU-second and each GiB-second; what a sandbox has when nobody says; the day of the price list."""

    vcpu_second: float
    gib_second: float
    vcpus: float
    memory_mb: float
    dated: str


PRICES = {"e2b": Price(0.000014, 0.0000045, 2, 512, "2026-08-20, e2b.dev/docs/billing")}
"""By kind of environment."""

LOCAL = frozenset({"bwrap", "docker", "podman", "kata", "apple-container", "singularity"})
"""Kinds that run on a machine of the operator's own: nothing is billed."""


def per_hour(kind: str, cpus: float | None, memory_mb: float | None) -> float | None:
    """USD for one hour of a sandbox, 0 for a local one, None where no price is known. None: the kind's own size."""
    if kind in LOCAL:
        return 0.0
    price = PRICES.get(kind)
    if price is None:
        return None
    gib = (price.memory_mb if memory_mb is None else memory_mb) / 1024
    return 3600 * ((price.vcpus if cpus is None else cpus) * price.vcpu_second + gib * price.gib_second)
