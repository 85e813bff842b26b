"""Groups that trainers order by name, and fetch as rows: over HTTP, from any language."""
