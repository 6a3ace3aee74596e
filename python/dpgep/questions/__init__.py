"""Questions to a release: whatever second moments can answer, by post-processing."""
