"""What others look at runs with: metrics and a dashboard of them, and a codec for the Temporal UI."""
