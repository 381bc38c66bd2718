"""Outcomes of result lines: latencies, speedups and intervals."""
