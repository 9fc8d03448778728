"""The data service: serves the rows of a job as microbatches."""
