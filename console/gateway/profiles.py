"""The Tinker gateways that people have, as data: what each takes, refuses and promises.

What a gateway says of itself wins over what is written here (`detect`); what it does not say comes from here, from the
options, or from its own refusal (`refusals`).
"""

from __future__ import annotations

from typing import Literal

import msgspec

import console.journal.events as ev
from console.gateway.probe import ServedModel

Sdk = Literal["0.26", "current"]

TRANSLATED_SDK = "0.38"
"""The SDK whose requests can be translated (`translation`): its minor version."""

MODULES = ("attn", "mlp", "unembed")
"""What an adapter may train; the cookbook asks for all of it."""

MILES_RESERVED_TOKENS = 7
"""Of its context length, the Miles gateway keeps so many: 65,529 of 65,536 can be prompt and sample together."""


class GatewayProfile(msgspec.Struct, frozen=True, kw_only=True):
    """What kind of gateway serves a run.

    Attributes:
        name: miles, hosted, skyrl or embedded; how: what told so, one line.
        sdk: the generation of the SDK whose requests it takes.
        losses: that it can train, empty for not known; modules: what its adapters must train, of attn, mlp, unembed,
            empty for any.
        context_window: tokens of a prompt and its sample together, as the options say; max_rank: of an adapter.
        expiring: whether checkpoints can be given a time to live; False where that is refused or ignored.
        refuses: what of `ttl` and `layout` it refuses where it does not fit; otherwise it is ignored.
        slots: models in training at a time; lease: seconds without a heartbeat after which it ends a session;
            sweep: seconds between two looks at the leases. None for not known.
        create_by_load: whether a model can be created by loading a checkpoint, as the current SDK does on a resume.
        lists_checkpoints: whether it lists checkpoints.
        sequence_ids: whether it names the samples it promises, as the current SDK insists.
        models: that it serves, empty when it names none.
    """

    name: str
    how: str = ""
    sdk: Sdk = "current"
    losses: tuple[str, ...] = ()
    context_window: int | None = None
    max_rank: int | None = None
    modules: tuple[str, ...] = ()
    expiring: bool | None = None
    refuses: tuple[str, ...] = ()
    slots: int | None = None
    lease: float | None = None
    sweep: float | None = None
    create_by_load: bool = True
    lists_checkpoints: bool = True
    sequence_ids: bool = True
    models: tuple[ServedModel, ...] = ()

    def window(self, model: str) -> int | None:
        """Tokens of a prompt and its sample together, for one model: the smaller of what is known; None for nothing."""
        served = [served.context_window for served in self.models if served.name == model]
        known = [tokens for tokens in (self.context_window, *served) if tokens is not None]
        return min(known, default=None)

    def event(self, model: str, translated: list[str]) -> ev.GatewayProfiled:
        """For the journal. `translated`: phrases, as `translation.installed` gives them."""
        return ev.GatewayProfiled(
            profile=self.name,
            how=self.how,
            sdk=self.sdk,
            translated=translated,
            losses=list(self.losses),
            context_window=self.window(model),
            max_rank=self.max_rank,
            modules=list(self.modules),
            expiring=self.expiring,
            slots=self.slots,
            lease=self.lease,
        )


PROFILES = {
    profile.name: profile
    for profile in (
        GatewayProfile(
            name="miles",
            sdk="0.26",
            losses=("cross_entropy", "importance_sampling", "ppo", "cispo", "dro"),
            expiring=False,
            refuses=("ttl", "layout"),
            lease=300.0,
            sweep=30.0,
            create_by_load=False,
            lists_checkpoints=False,
        ),
        GatewayProfile(name="hosted", expiring=True),
        GatewayProfile(
            name="skyrl",
            losses=("cross_entropy", "importance_sampling", "ppo", "cispo", "gspo"),
            modules=("attn", "mlp"),
            expiring=False,
            lease=300.0,
            sweep=60.0,
            create_by_load=False,
            lists_checkpoints=False,
            sequence_ids=False,
        ),
        GatewayProfile(
            name="embedded",
            losses=("cross_entropy", "importance_sampling", "ppo", "cispo", "dro", "gspo"),
            expiring=True,
            lease=300.0,
            sweep=30.0,
        ),
    )
}
