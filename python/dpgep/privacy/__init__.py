"""Privacy: conversions, budgets, the ledger, noise, and the curator that holds the data."""
