"""The reference set-up in `configs/` is the recipe's documented command line, option for option."""

from __future__ import annotations

from pathlib import Path

from console.training.options import parse

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
DOCUMENTED = [
    "config.base_url=http://localhost:10613",
    "config.model_name=Qwen/Qwen3.6-35B-A3B",
    "config.renderer_name=qwen3_5",
    "config.lora_rank=16",
    "config.learning_rate=1e-6",
    "config.max_tokens=8192",
    "config.loss_fn=ppo",
    "config.ttl_seconds=None",
    "config.log_path=/tmp/harbor-tinker",
    "config.dataset_builder.tasks_dir=/data/harbor-tasks/terminal-bench",
    "config.dataset_builder.groups_per_batch=4",
    "config.dataset_builder.group_size=8",
    f"harbor.trial_config={CONFIGS / 'trials/mini-swe-agent-e2b.json'}",
    "harbor.listen_host=0.0.0.0",
]


def test_the_file_says_what_the_command_line_says():
    file, command = parse([str(CONFIGS / "terminal-bench-2.toml")]), parse(DOCUMENTED)
    assert file.harbor == command.harbor
    ours = {"save_every": 5}
    assert file.config == command.config | ours
