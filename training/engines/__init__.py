"""Engines: where tokens are sampled and weights change. The loop sees only ``base.Engine``."""
