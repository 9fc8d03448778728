"""The coordinator: holds the plan, beats time, keeps the jobs."""
