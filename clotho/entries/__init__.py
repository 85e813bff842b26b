"""What the journal holds, one record per kind of entry."""
