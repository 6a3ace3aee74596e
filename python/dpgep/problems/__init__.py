"""Problems: builders, which join a model to data, and what they build. No noise here."""
