"""A sandbox with a supervisor inside, as its host drives it: through a control directory."""
