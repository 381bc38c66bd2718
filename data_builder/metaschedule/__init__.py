"""metaschedule."""
