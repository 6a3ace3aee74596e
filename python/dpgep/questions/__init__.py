"""Answers to questions about one release, computed from released and public numbers alone."""
