"""Writes src/waycode/models/golden.json, which `waycode doctor` compares the bundled models with.

Run `python docs/golden.py` after a change of the bundled models.
"""

import sys

from waycode.evaluation.doctor import write_golden

if __name__ == "__main__":
    sys.stdout.write(f"{write_golden()}\n")
