"""What kvcanary costs, measured beside what it is compared with. `make bench` runs all of it."""
