"""Floor 4: how good a policy is, and how sure one can be of it."""
