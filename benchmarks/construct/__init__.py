"""First choices of the constructor's traversals and choices, over the best schedule known of each task."""
