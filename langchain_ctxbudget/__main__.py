"""The command `ctxbudget` as `python -m langchain_ctxbudget`."""

import sys

from langchain_ctxbudget.cli.__main__ import main

if __name__ == "__main__":
    sys.exit(main())
