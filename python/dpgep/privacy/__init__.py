"""Privacy: conversions, budgets, the ledger, calibration, and the curator that holds the data."""
