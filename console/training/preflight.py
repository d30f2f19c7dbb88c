"""Everything that can be refused before a sandbox exists, from the options, the environment, Harbor and the gateway.

`preflight` is quick (a tenth of a second) and starts nothing. `preflight_harbor` asks the installed Harbor (a second,
or five with an agent that imports litellm); `preflight_gateway`, in a module of that name, asks the gateway.
"""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from console.errors import UsageError
from console.findings import WARNING, Finding
from console.training.options import RunOptions
from console.training.preflight_capture import capture_findings, finding_of, of_advertised_url, reach_host
from console.training.preflight_gateway import gateway_options
from console.training.preflight_sandboxes import sandbox_findings
from console.training.schema import load_schema
from console.training.trial_config import check_trial_config, environment_of, load_trial_config, substitute

BWRAP = "console.trials.bwrap:BwrapEnvironment"
STAND_IN_URL = "http://127.0.0.1:8080"
"""For `{proxy_url}` while nothing listens yet: an option of an agent or an environment may have to be a URL."""


def preflight(options: RunOptions, env: Mapping[str, str]) -> list[Finding]:
    """Findings about the options, the tasks, the trial file and the credentials. Never raises for a user's mistake.

    Args:
        env: environment variables of the process that will train and run Harbor.
    """
    findings = [*_refused(options), *_cookbook_rules(options), *_numbers(options)]
    findings += [*gateway_options(options, env), *_files(options), *_notify_command(options, env)]
    try:
        trial = load_trial_config(options.harbor.trial_config)
    except UsageError as problem:
        findings.append(finding_of("trial.file", problem))
    else:
        of_trial = check_trial_config(
            trial, env, listen_host=options.harbor.listen_host, advertised_host=reach_host(options)
        )
        if options.harbor.advertised_url is not None:
            of_trial = [told for found in of_trial if (told := of_advertised_url(found)) is not None]
        findings += [*of_trial, *sandbox_findings(options, trial, env)]
    return [*findings, *capture_findings(options, env)]


def preflight_harbor(options: RunOptions) -> list[Finding]:
    """Findings of the installed Harbor about the trial file; none when the file itself cannot be read.

    Raises:
        ImportError: Harbor is not installed.
    """
    # Some agents import litellm, which fetches a price list from the network unless told not to.
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    os.environ.setdefault("HARBOR_TELEMETRY", "0")
    from console.trials.config_check import check_with_harbor

    try:
        trial = substitute(load_trial_config(options.harbor.trial_config), STAND_IN_URL, "key")
    except UsageError:
        return []
    return [*check_with_harbor(trial), *check_sandboxes(trial)]


def check_sandboxes(trial: Mapping[str, Any]) -> list[Finding]:
    """Whether this host can run the sandboxes that the trial file names, where they are ours (some 100 ms)."""
    from console.trials.bwrap_check import check_bubblewrap

    if environment_of(trial) != BWRAP:
        return []
    return [
        Finding(code="sandbox.bubblewrap", object="harbor.trial_config", message=problem)
        for problem in check_bubblewrap()
    ]


def _refused(options: RunOptions) -> Iterator[Finding]:
    seen = set()
    for key in options.given:
        option = load_schema().refusing(key)
        if option is not None and option.key not in seen:
            seen.add(option.key)
            yield Finding(
                code="option.refused",
                object=key,
                message=f"may not be set: {option.refused}",
                remedy="remove it",
            )


def _cookbook_rules(options: RunOptions) -> Iterator[Finding]:
    value = options.value
    if value("config.temperature") != 1.0:
        yield Finding(
            code="option.temperature",
            object="config.temperature",
            message=f"must remain 1.0, it is {value('config.temperature'):g}",
            remedy="agents sample by themselves: set their temperature in the trial file",
        )
    if value("config.rolling_save_every") > 0 and value("config.ttl_seconds") is None:
        yield Finding(
            code="option.rolling",
            object="config.rolling_save_every",
            message="rolling checkpoints always carry a lifetime, which contradicts config.ttl_seconds=None",
            remedy="set it to 0 and use config.save_every",
        )
    if value("config.kl_penalty_coef") > 0 and not value("config.kl_reference_config.base_model"):
        yield Finding(
            code="option.kl_reference",
            object="config.kl_penalty_coef",
            message="a KL penalty needs a reference",
            remedy="set config.kl_reference_config.base_model",
        )
    elif value("config.kl_reference_config.load_checkpoint_path") and not value(
        "config.kl_reference_config.base_model"
    ):
        yield Finding(
            code="option.kl_reference",
            object="config.kl_reference_config.base_model",
            message="is missing beside load_checkpoint_path",
            remedy="set it",
        )
    if value("config.loss_fn") != "ppo":
        yield Finding(
            code="option.loss",
            level=WARNING,
            object="config.loss_fn",
            message=f"is {value('config.loss_fn')}; ppo_loss and clip_fraction will be null",
            remedy="config.loss_fn=ppo is what the recipe is made for",
        )
    if value("config.remove_constant_reward_groups"):
        yield Finding(
            code="option.constant_groups",
            level=WARNING,
            object="config.remove_constant_reward_groups",
            message="the cookbook then attributes figures to the wrong groups",
            remedy="leave it false: such groups have no gradient anyway",
        )
    group_size = value("config.dataset_builder.group_size")
    if group_size == 1:
        yield Finding(
            code="option.group_size",
            level=WARNING,
            object="config.dataset_builder.group_size",
            message="with one trial a group every advantage is zero, so nothing is learnt",
            remedy="use 2 or more",
        )
    yield from _renderer(options)


_POSITIVE = (
    "config.learning_rate",
    "config.max_tokens",
    "config.num_substeps",
    "config.lora_rank",
    "config.dataset_builder.groups_per_batch",
    "config.dataset_builder.group_size",
    "config.dataset_builder.epochs",
    "config.max_steps",
    "config.ttl_seconds",
    "config.rolling_ttl_seconds",
    "harbor.reward_limit",
    "harbor.max_parallel_trials_per_group",
    "harbor.runners",
    "harbor.max_tries",
    "harbor.max_calls",
    "harbor.max_prompt_tokens",
    "harbor.max_sampled_tokens",
    "harbor.max_call_bytes",
    "harbor.max_inflight_calls",
    "console.hold_timeout",
    "console.probe_interval",
    "console.gateway_rank",
    "console.context_window",
    "console.token_budget",
    "console.time_budget",
)
_NOT_NEGATIVE = (
    "config.eval_every",
    "console.slot_wait",
    "config.save_every",
    "config.rolling_save_every",
    "config.span_chart_every",
    "config.num_groups_to_log",
    "config.kl_penalty_coef",
    "config.kl_discount_factor",
)
_NOT_EMPTY = ("config.model_name", "harbor.reward_key", "harbor.listen_host", "harbor.advertised_host")


def _numbers(options: RunOptions) -> Iterator[Finding]:
    for names, refused, wanted in ((_POSITIVE, 0, "above 0"), (_NOT_NEGATIVE, -1e-300, "0 or more")):
        for name in names:
            value = options.value(name)
            if value is not None and value <= refused:
                yield Finding(
                    code="option.range", object=name, message=f"must be {wanted}, it is {value}", remedy="correct it"
                )
    for name in _NOT_EMPTY:
        if not options.value(name).strip():
            yield Finding(code="option.empty", object=name, message="is empty", remedy="give it a value")


def _renderer(options: RunOptions) -> Iterator[Finding]:
    """An unknown model needs a renderer's name; the look-up is the cookbook's own and imports nothing heavy."""
    name = options.value("config.model_name")
    if options.value("config.renderer_name") is not None or importlib.util.find_spec("tinker_cookbook") is None:
        return
    from tinker_cookbook import model_info

    try:
        model_info.get_recommended_renderer_name(name)
    except Exception:
        yield Finding(
            code="option.renderer",
            object="config.renderer_name",
            message=f"the cookbook recommends no renderer for {name}",
            remedy="set it",
        )


def _files(options: RunOptions) -> Iterator[Finding]:
    tasks = options.tasks_dir
    name = "config.dataset_builder.tasks_dir"
    if not tasks.is_dir():
        yield Finding(code="tasks.missing", object=name, message=f"{tasks} is no directory", remedy="name one")
    else:
        found = sum((path / "task.toml").is_file() for path in tasks.iterdir() if path.is_dir())
        if not found:
            yield Finding(
                code="tasks.none",
                object=name,
                message=f"{tasks} holds no task",
                remedy="each task is a directory with a task.toml directly below it",
            )
    yield from _run_directory(options.log_path)


def _run_directory(path: Path) -> Iterator[Finding]:
    above: Any = path
    while not above.exists() and above != above.parent:
        above = above.parent
    if not above.is_dir():
        yield Finding(
            code="run.directory",
            object="config.log_path",
            message=f"{above} is not a directory",
            remedy="name a directory that exists or can be made",
        )
        return
    try:
        # Permissions do not tell of everything: a read-only mount, a quota, a file system that takes no directories.
        with tempfile.TemporaryDirectory(dir=above, prefix=".quarterdeck-"):
            pass
    except OSError as problem:
        yield Finding(
            code="run.directory",
            object="config.log_path",
            message=f"nothing can be written in {above}: {problem.strerror}",
            remedy="name a directory that you may write in",
        )


def _notify_command(options: RunOptions, env: Mapping[str, str]) -> Iterator[Finding]:
    """Its program is looked for as the engine will: on the path, or where it says."""
    command = options.console.notify_command
    if not command:
        return
    program = shlex.split(command)[0]
    if shutil.which(program, path=env.get("PATH")) is None:
        there = "/" in program and Path(program).exists()
        yield Finding(
            code="notify.command",
            object="console.notify_command",
            message=f"{program} {'cannot be executed' if there else 'does not exist'}",
            remedy="make it executable" if there else "correct it, or install the program",
        )
