"""What was released, and what follows from it at no further cost. No data, and no noise, here."""
