"""One module a command; each holds one function named `command` that returns the exit code."""
