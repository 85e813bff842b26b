"""The complete code of the how-to pages."""
