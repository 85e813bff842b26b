"""The parts of the documentation that are computed from the code."""
