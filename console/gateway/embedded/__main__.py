"""`python -m console.gateway.embedded`."""

import sys

from console.gateway.embedded.serve import main

sys.exit(main(sys.argv[1:]))
