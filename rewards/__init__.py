"""Floor 3: from trajectories to named reward components. No model."""
