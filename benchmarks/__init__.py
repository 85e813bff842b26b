"""What Clotho costs, beside what it stands on; `make bench` prints all of it."""
