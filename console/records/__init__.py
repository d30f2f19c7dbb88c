"""Readers of what lies on disk. Nothing here needs the engine, a gateway or Harbor."""
