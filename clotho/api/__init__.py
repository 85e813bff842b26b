"""The Python API: what `import clotho` offers to scripts and notebooks."""
