"""The report of a prompt, its renderers and its plots; they read its plain data and nothing else."""
