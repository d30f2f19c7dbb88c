"""Reaching a running engine: its socket, the commands it takes, who asked for what, and the registry of runs."""
