"""The Temporal cluster: connecting to it, what its namespace must know, and where its UI shows things."""
