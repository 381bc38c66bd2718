"""Architectures by the libraries' own lists: built and right, refused by name, or wrong."""
