"""Floor 1: from mail files on disk to a searchable index."""
