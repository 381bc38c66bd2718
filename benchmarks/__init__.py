"""Benchmarks that reproduce the paper's tables with the same search and machine for every method."""
