"""The dashboard: a page and a JSON API over the conversations of one user at a time.

Needs the extra `dashboard`.
"""

from langchain_ctxbudget.installing import install_command

try:
    import starlette
except ImportError as error:  # pragma: no cover - the tests have it
    raise ImportError(f"The dashboard needs starlette: {install_command('dashboard')}") from error

from langchain_ctxbudget.dashboard.app import create_app

__all__ = ["create_app"]
