"""A local server that speaks E2B's protocols, REST and envd, over sockets; its sandboxes are bubblewrap's.

For the real e2b SDK, through Harbor's E2B environment or by itself. `server.E2BServer` runs it, `faults.Fault` breaks
it at a stated place, `job` runs a seeded job of many trials against it.
"""
