"""The score board: every figure that an issue or README names, from committed lines (`figures.json`)."""
