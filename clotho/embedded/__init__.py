"""The services that `make demo` starts on one machine: a Temporal server and a small real model."""
