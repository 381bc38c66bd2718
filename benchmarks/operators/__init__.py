"""Operators, by the standards' own tests: what is right, refused, wrong."""
