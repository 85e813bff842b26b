"""Model servers behind one protocol: a turn is asked for and comes back whole."""
