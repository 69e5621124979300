"""Trajectory data for SFT: a teacher plays tasks with our tools, and named stages make a data set of its episodes.

tasks -> ``solving`` (a teacher: expert, endpoint or policy) -> ``pipeline`` (filters, rewrites, duplicates, split).
"""
