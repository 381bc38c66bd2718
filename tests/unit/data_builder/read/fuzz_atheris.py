"""Coverage-guided fuzzing of the line parser, for whoever has atheris.

``PYTHONPATH=tests/support python tests/unit/data_builder/read/fuzz_atheris.py -max_total_time=600``
"""

import random
import sys

import atheris

with atheris.instrument_imports():
    from fuzzed_lines import check_line
    from mutate import mutate, seeds

SEEDS = seeds()


def one(data: bytes) -> None:
    """Check the bytes as they are, and as the seed of a damaged line."""
    check_line(data)
    chance = random.Random(data)
    check_line(mutate(chance.choice(SEEDS), chance.choice(SEEDS), chance))


if __name__ == "__main__":
    atheris.Setup(sys.argv, one)
    atheris.Fuzz()
