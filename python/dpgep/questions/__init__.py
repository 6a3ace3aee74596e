"""Questions to a release, answered by post-processing: nothing here sees data, or costs anything."""
