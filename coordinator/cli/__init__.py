"""The command line: `takt`. It asks, shows and starts processes; it never computes a plan or judges a job."""
