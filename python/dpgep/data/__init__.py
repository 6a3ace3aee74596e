"""Data: rows of people, wherever they are, and sums over them."""
