"""Blob stores: where the journal's entries live."""
