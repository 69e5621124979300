"""Floor 2: what the policy talks to. No model, no engine, no torch."""
