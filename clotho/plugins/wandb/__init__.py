"""Logs of runs at Weights & Biases."""
