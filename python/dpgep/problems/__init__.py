"""Problems: each question in one file, its model and what joins it to data. No noise here."""
