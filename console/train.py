"""`python -m console.train key=value...` is `quarterdeck train`: the recipe's documented command line, unchanged."""

import sys

from console.cli import guarded
from console.commands.train import train_main

if __name__ == "__main__":
    sys.exit(guarded(lambda: train_main(sys.argv[1:])))
