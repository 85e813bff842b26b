"""What others look at runs with: metrics, their dashboard, health checks, traces, a codec for the Temporal UI."""
