"""Stage workers: an agent a slot, an executor an attempt, the engine inside."""
