"""Measurements, and the runner that obeys a plan from a local list with no coordinator."""
