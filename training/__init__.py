"""Floor 4: from rewards to weights."""
