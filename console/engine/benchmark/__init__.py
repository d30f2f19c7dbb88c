"""The engine of a benchmark run: Harbor in a process of its own, its journal, its socket."""
