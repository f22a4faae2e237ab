"""The command `ctxbudget`: reads files and stores, and prints what a pipeline makes of them."""
