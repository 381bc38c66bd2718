"""Offline evaluation: ranking of recorded programs without a search."""
