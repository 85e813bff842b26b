"""What others look at runs with: metrics, a dashboard of them, health checks, traces, notices, a codec for the Temporal UI."""
