"""`python -m console` is `quarterdeck`."""

from console.cli import main

if __name__ == "__main__":
    main()
