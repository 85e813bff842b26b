"""Run results in the formats of other evaluation tools."""
