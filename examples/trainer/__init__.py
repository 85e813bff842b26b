"""A trainer as Atropos' API sees one: it registers, fetches batches, and here only checks them."""
