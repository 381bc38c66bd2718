"""offline_measure."""
