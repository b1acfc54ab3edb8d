"""Co-verification: the gates run against the golden model on the same words."""
