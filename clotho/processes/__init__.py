"""Processes of a machine: started, kept running, numbered, and known to be there."""
