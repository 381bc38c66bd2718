"""The benchmarks: the paper's tables, reproduced with one search and one machine for every method."""
