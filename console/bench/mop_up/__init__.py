"""Re-running what failed for reasons that are not the agent's, in a job of its own."""
