"""Tuned models beside the runtimes that people use: alone, and on a machine that does other things."""
