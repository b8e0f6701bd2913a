"""`python -m tenure` is the command `tenure`."""

from tenure.cli.main import entry

if __name__ == "__main__":
    entry()
