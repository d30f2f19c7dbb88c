"""The long half of `quarterdeck bench run --help`."""

from __future__ import annotations

from console.commands.bench_tally import listed
from console.commands.look import LOOK_HELP

_INSTEAD = {
    "--agent": "agent.name=NAME",
    "-a": "agent.name=NAME",
    "--ak": "agent.kwargs.KEY=VALUE",
    "--agent-kwarg": "agent.kwargs.KEY=VALUE",
    "--ae": "agent.env.NAME='${NAME}', with NAME exported",
    "--agent-env": "agent.env.NAME='${NAME}', with NAME exported",
    "--env": "environment.type=NAME",
    "-e": "environment.type=NAME",
    "--ek": "environment.kwargs.KEY=VALUE",
    "--environment-kwarg": "environment.kwargs.KEY=VALUE",
    "--repo": "datasets in the file: - repo: URL",
    "--dataset": "datasets in the file: - name: NAME",
    "-d": "datasets in the file: - name: NAME",
    "--path": "datasets in the file: - path: DIR",
    "-p": "datasets in the file: - path: DIR",
    "--config": "the file's name alone",
    "-c": "the file's name alone",
    "--agent-timeout-multiplier": "agent_timeout_multiplier=4",
    "--timeout-multiplier": "timeout_multiplier=4",
    "--max-retries": "retry.max_retries=N",
    "--debug": "debug=true",
    "--quiet": "--plain or --headless",
    "-y": "nothing: it does not ask",
    "--yes": "nothing: it does not ask",
}
"""Options of `harbor run` that are keys of the job here."""


def hint(word: str) -> str:
    """What to write for an option of `harbor run`, "" for one that is none."""
    instead = _INSTEAD.get(word.split("=", 1)[0])
    return f"; here it is {instead}" if instead else ""


_FINDINGS = {
    "keys and URLs": "a key that is missing, in clear, or on the wrong side; an agent of the host's (terminus-2) takes "
    "its key from the shell and api_base as an option, a program in the sandbox (mini-swe-agent, claude-code, codex) "
    "both from agent.env",
    "the endpoint": "is it there, does it take the key, does it serve the model, does it speak what the agent speaks "
    "(claude-code: Anthropic's Messages; codex: Responses); nothing is sampled",
    "tasks": "globs that match nothing, pointers of git-lfs in place of files, variables that tasks ask for",
    "sandboxes": "whether this kind can be had here, images, memory and cores, limits that end an agent that works in "
    "one long command",
    "the figure": "retries that delete evidence, multipliers, agents without a time-out",
}

_ORDERS = {
    "set concurrency=N": "trials at once, up to the job's own number",
    "pause, resume": "begin no trial for a while",
    "stop-after-step": "begin no more; what is at work ends, and bench mop-up runs the rest",
    "stop-now": "end now; what was finished stands",
}

_SERVING = {
    "SGLang, one H200": "Qwen3.8-27B-FP8: --mem-fraction-static 0.85 --mamba-full-memory-ratio 3.67, no speculative "
    "decoding (with a draft model and ratio 11.01 it ran out of memory); terminus-2-hf.yaml has the whole command",
    "thinking": "qwen3 thinks unless told not to: --default-chat-template-kwargs '{\"enable_thinking\": false}'",
    "gpt-oss-20b": "on one L40S: vllm/vllm-openai:latest, vllm serve openai/gpt-oss-20b --port 8000; the wheels that "
    "its card names (0.10.1+gptoss) need a nightly build that is gone",
    "hf jobs run": "passes its command as it stands, not through a shell or the image's entry point: write the "
    "program's name first. Its --timeout ends it some time, not at the time",
}

_FIGURES = {
    "37.98 % (169/445)": "Qwen3.6-35B-A3B, terminus-2, Terminal-Bench 2.0, 89 tasks x 5: E2B of 1 CPU and 2 GiB, the "
    "tasks' own time-outs (600 to 12,000 s, no multiplier), 256K context, at most 80K output, no step limit, 3 "
    "retries, 8 H200; by error-aware. Its published errors contradict each other",
    "24.6 % +- 3.2": "the leaderboard's entry of another agent, little-coder: not comparable with it",
    "62.35 % (53/85)": "Qwen3.8-27B-FP8, terminus-2, Terminal-Bench 2.1, time-outs x 4; with mini-swe-agent 51.9 % "
    "(42/81): 1.4 standard errors apart, so not told apart by these figures",
    "4.71 % (4/85)": "gpt-oss-20b, terminus-2, in the same setting",
}

EPILOG = (
    f"""\
KEY=VALUE replaces a value of the file by its dotted key: n_attempts=5, timeout_multiplier=2,
datasets.0.task_names='[fix-git, vim*]'. agent., dataset. and task. stand for each one of the job:
agent.kwargs.api_base=URL. null is as if the key were left out: a job whose sandboxes have an import_path runs in docker
by environment.import_path=null environment.type=docker. The model's name goes out as you write it.

A path of a dataset is taken from the working directory or, if it is not there, from the file's own. jobs_dir is taken
from the working directory; the whole path of the job directory is always told.

bundled jobs (--list): local (no model, no key), smoke, terminus-2-hf, mini-swe-agent-hf, gpt-oss-hf, e2b; their
comments tell what such runs came to, and what went wrong with them

begin small: one task, docker or bwrap, one at a time. It finds wiring mistakes in minutes that 89 tasks tell in hours.
One task may take long all the same: a smoke test of Terminal-Bench 3.0 (atrx-vep-crispr, 7 hours of an expert's time)
ended without an error and without a solution after 3 h 6 min, 5.68 million tokens in and 681,000 out.

told before anything starts (--check tells it all, and starts nothing)
{listed(_FINDINGS)}
while it runs (quarterdeck ctl RUN ..., or the same keys as for a training)
{listed(_ORDERS)}A run that fails the same way from the start is ended after 8 trials (exit code 4), with what to do.
Harbor's own retries delete what they repeat: leave them off and use bench mop-up afterwards.

--continue goes on in the directory of a job that was cut off, and says first what is kept, deleted and run. It refuses
where finished trials would run again: with another endpoint they would, so that a new URL is a case for bench mop-up.

serving a model
{listed(_SERVING)}
figures published for comparison, with what is known against them
{listed(_FIGURES)}Only a run of the same dataset, time-outs and sandboxes compares: bench compare.

"""
    + LOOK_HELP
    + """
examples
  quarterdeck bench run local                         the bundled tasks, here, with their own solutions
  quarterdeck bench run local --check                 what it would do
  quarterdeck bench run smoke agent.kwargs.api_base=https://HOST/v1 -m openai/Qwen/Qwen3.8-27B-FP8
  quarterdeck bench run my-job.yaml -n 3 --throttle auto --detach
  quarterdeck bench run my-job.yaml --job-name tb21-full --continue
"""
)
