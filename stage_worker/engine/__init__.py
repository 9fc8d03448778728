"""The engine: obeys the commands of a step on this worker's layers. Knows torch, no wire."""
