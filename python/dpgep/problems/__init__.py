"""Problems: rows of people (or matrices) and what is asked of them. No noise here."""
