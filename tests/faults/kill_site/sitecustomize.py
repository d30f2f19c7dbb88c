"""Python imports this at its start where PYTHONPATH has it: the way into an engine that a command starts."""

import os
import sys

if "QUARTERDECK_KILL" in os.environ:
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    import kill_moments

    del sys.path[0]
    kill_moments.main()
