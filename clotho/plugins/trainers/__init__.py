"""Adapters for trainers: each orders groups by name, and gives the rows the shape that its trainer takes."""
