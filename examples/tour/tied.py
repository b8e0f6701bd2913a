"""Run a program that ends when its stdin is closed: python tied.py PROGRAM [ARGUMENTS].

So the program ends with the tour, even if the tour is killed.
"""

import os
import runpy
import sys
import threading


def end_with_input() -> None:
    while os.read(0, 1024):
        pass
    os._exit(1)


if __name__ == "__main__":
    threading.Thread(target=end_with_input, daemon=True).start()
    sys.argv = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")
