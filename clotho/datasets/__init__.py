"""Datasets as items: files, folders, and datasets of the Hugging Face hub."""
