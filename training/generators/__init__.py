"""Builders of question files: from templates, from paths of the mail graph, from a model that explores."""
