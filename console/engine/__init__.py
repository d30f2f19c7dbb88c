"""The engine: one process per run, the composition root. Started as a module by name; nothing imports it."""
