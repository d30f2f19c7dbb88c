"""The capture gateway: agents' model calls in, samples out, every token and log-prob kept."""
