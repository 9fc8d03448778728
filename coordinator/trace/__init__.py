"""Where the time of a job's workers went, as values, as Chrome trace JSON and as pictures."""
