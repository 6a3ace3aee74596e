"""Files: dataclasses as JSON and back, and what a file of a solution holds."""
