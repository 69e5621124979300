"""The engine of a cluster, from NeMo-RL v0.7.0's pieces: its rollouts, its policy, its loss, its refit."""
