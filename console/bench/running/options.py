"""What a benchmark run is started with, as it crosses from the command to the engine."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

Throttle = Literal["advise", "auto", "off"]


class BenchOptions(msgspec.Struct, kw_only=True, frozen=True):
    """A benchmark run.

    Attributes:
        job: Harbor's job configuration as plain data; `jobs_dir` is absolute and `job_name` is set. It holds no
            secret: literal ones were replaced by `${NAME}`, whose values are in the environment of the engine.
        job_file: where it came from, absolute, empty when it was made by us.
        run_dir: where the journal lies, absolute; never inside the job directory, for Harbor's resume deletes there.
        name: of the run, for the screens.
        endpoint: base URL of the model, which is asked for a sign of life while the job runs; empty: not known.
        key_name: name of the environment variable with the key for it.
        throttle: what follows when sandboxes fail: advice, fewer trials at once, or nothing.
        infra_window: finished trials looked back at; infra_share: share of infrastructure outcomes among them at which
            something is said or done, 0 to 1; least: trials at once below which throttling never goes.
        early_stop: end the job when everything fails in the same way; early_stop_trials: finished trials before that.
        parent: job directory that a mop-up belongs to, empty for none; mop_up: its number, from 1; 0 for none.
        rules: a user's rule file, absolute, by which ended trials are judged as well; empty for none.
        most_trials: that the job may have: where Harbor plans more, the run ends before one of them begins; 0 for any.
    """

    job: dict[str, Any]
    run_dir: str
    job_file: str = ""
    name: str = ""
    endpoint: str = ""
    key_name: str = "OPENAI_API_KEY"
    throttle: Throttle = "advise"
    infra_window: int = 20
    infra_share: float = 0.25
    least: int = 1
    early_stop: bool = True
    early_stop_trials: int = 8
    parent: str = ""
    mop_up: int = 0
    rules: str = ""
    most_trials: int = 0

    @property
    def job_dir(self) -> str:
        """Absolute path of Harbor's job directory."""
        return f"{self.job['jobs_dir']}/{self.job['job_name']}"

    @property
    def family_dir(self) -> str:
        """The job directory that a mop-up is typed with: the parent's where this is one."""
        return self.parent or self.job_dir

    def to_json(self) -> bytes:
        """As it is written for the engine."""
        return msgspec.json.encode(self)

    @classmethod
    def from_json(cls, data: bytes) -> BenchOptions:
        """Raises `msgspec.ValidationError` or `msgspec.DecodeError`."""
        return msgspec.json.decode(data, type=cls)
