"""Launching Harbor trials: the runner process, its sandbox environment, and our small terminal agent."""
