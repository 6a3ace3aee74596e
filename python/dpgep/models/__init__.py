"""Models: what A and B are as functions of released values. Public, free of data."""
