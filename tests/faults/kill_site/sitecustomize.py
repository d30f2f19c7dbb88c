"""Python imports this at its start where PYTHONPATH has it: the way into an engine that a command starts."""

import os
import sys
import traceback

if "QUARTERDECK_KILL" in os.environ:
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    try:
        import kill_moments

        kill_moments.main()
    except BaseException:  # Python would only mention it, and the kill would never come
        traceback.print_exc()
        os._exit(99)
    del sys.path[0]
