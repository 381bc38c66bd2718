"""rankers."""
