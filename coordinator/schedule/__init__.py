"""Plans as data: orders, lowering, checking, simulation, drawing. Standard library only."""
