"""The page that a reviewer reads, and how two revisions differ."""
