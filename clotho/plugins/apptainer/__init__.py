"""Sandboxes of images without an engine: Apptainer, or Singularity, makes the view of a local sandbox."""
