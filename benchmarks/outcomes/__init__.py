"""outcomes."""
