"""Reports and score board from result lines."""
