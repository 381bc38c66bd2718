"""ansor."""
