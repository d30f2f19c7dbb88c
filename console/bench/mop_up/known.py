"""What the installed Harbor knows of a job's configuration, by name: older and newer ones have other keys.

Harbor passes over an unknown key without a word, which would be a run under other conditions than the one it repeats.
A test holds these names against the installed Harbor.
"""

from __future__ import annotations


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


JOB = _names(
    "agent_setup_timeout_multiplier agent_timeout_multiplier agents artifacts datasets debug environment "
    "environment_build_timeout_multiplier extra_instruction_paths extra_instructions install_only job_name "
    "jobs_dir metrics n_attempts n_concurrent_trials override_error_policy quiet retry schema_version "
    "skip_credential_checks source_jobs tasks timeout_multiplier user_agent verifier "
    "verifier_timeout_multiplier"
)
AGENT = _names(
    "base_url concurrency_group env exclude_logs extra_allowed_hosts import_path include_logs kwargs "
    "load_trajectory max_timeout_sec mcp_servers model_api_format model_api_key_name model_name n_concurrent "
    "name override_setup_timeout_sec override_timeout_sec resume_trajectory skills skip_model_parsing"
)
ENVIRONMENT = _names(
    "cpu_enforcement_policy delete env extra_allowed_hosts extra_docker_compose force_build import_path kwargs "
    "memory_enforcement_policy mounts override_cpus override_gpus override_memory_mb override_storage_mb "
    "override_tpu stream suppress_override_warnings type"
)
VERIFIER = _names(
    "disable env exclude_logs extra_allowed_hosts import_path include_logs kwargs max_timeout_sec override_timeout_sec"
)
DATASET = _names(
    "download_dir exclude_task_names n_tasks name overwrite path ref registry_path registry_url repo task_names version"
)
TASK = _names("download_dir git_commit_id git_url name overwrite path ref source")
RETRY = _names("exclude_exceptions include_exceptions max_retries max_wait_sec min_wait_sec wait_multiplier")
