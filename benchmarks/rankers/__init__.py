"""Research rankers and TLP, outside the shipped package."""
