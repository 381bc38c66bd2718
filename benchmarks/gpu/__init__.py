"""Half precision on NVIDIA GPUs: what can be checked without one, and one script of minutes for where one is."""
