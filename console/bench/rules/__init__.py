"""Rules of triage as data: the tables that only bench has, and those of a user's own file."""
