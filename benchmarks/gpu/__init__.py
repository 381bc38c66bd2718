"""Half precision on NVIDIA GPUs: what is checked without one, and a script of minutes with one."""
