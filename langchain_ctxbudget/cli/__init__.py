"""The command `ctxbudget`, one module a command."""
