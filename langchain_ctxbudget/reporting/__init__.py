"""Renderings of a report; they read its plain data and nothing else."""
