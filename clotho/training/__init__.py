"""Finished groups as rows of tokens: what every trainer and exporter is given, and what none may be given."""
