"""Sandboxes where only a stream to a program inside can be had: engines on other machines, and clouds."""
