"""`python -m langchain_ctxbudget.cli` is the command `ctxbudget`."""

from __future__ import annotations

import sys

from langchain_ctxbudget.cli.commands import main

sys.exit(main())
