"""`quarterdeck doctor`: what this host, this account and these options make of a run, before there is one."""
