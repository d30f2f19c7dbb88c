"""The terminal console: it reads a run through a source, paints it, and sends commands. It owns nothing of a run."""
