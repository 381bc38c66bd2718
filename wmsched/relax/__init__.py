"""relax."""
