"""The run as an operator sees it, reduced from journal events; no screen, no clock, no input or output."""
