"""Who uses the agent on LangGraph Server, and that nobody runs it in another one's name.

What a run says in its config or context outweighs the server's user, so that a backend can act for its users. Clients
that reach the server themselves must not: a run that names another user is refused. To use it, add
`"auth": {"path": "./auth.py:auth"}` to langgraph.json. As a script it shows what is let through.

    python examples/server/auth.py
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from langgraph_sdk import Auth

TOKENS = {"demo-token-1": "ada", "demo-token-2": "bo"}
"""A real service asks its identity provider."""
SCOPE = ("user_id", "conversation_id")

auth = Auth()


@auth.authenticate
async def user_of(authorization: str | None) -> Auth.types.MinimalUserDict:
    """Find the user by their bearer token."""
    kind, _, token = (authorization or "").partition(" ")
    if kind.lower() != "bearer" or token not in TOKENS:
        raise Auth.exceptions.HTTPException(status_code=401, detail="no such token")
    return {"identity": TOKENS[token]}


@auth.on
async def own_things_only(ctx: Auth.types.AuthContext, value: dict[str, Any]) -> dict[str, str]:
    """Refuse a scope that is not the user's, and let them see what is theirs."""
    if ctx.resource == "store":
        raise Auth.exceptions.HTTPException(
            status_code=403, detail="the store is the agent's alone"
        )
    if names_another(value, ctx.user.identity):
        raise Auth.exceptions.HTTPException(
            status_code=403, detail=f"{' and '.join(SCOPE)} are not yours to say"
        )
    owner = {"owner": ctx.user.identity}
    value.setdefault("metadata", {}).update(owner)
    return owner


def names_another(value: Mapping[str, Any], identity: str) -> bool:
    """Whether a run, an assistant or a cron job names another scope than that of the user."""
    given = {**value, **(value.get("kwargs") or {}), **(value.get("payload") or {})}
    config = given.get("config") or {}
    parts = (config.get("configurable"), config.get("context"), given.get("context"))
    return any(
        part.get(key) not in (None, identity)
        for part in parts
        if isinstance(part, Mapping)
        for key in SCOPE
    )


def main() -> None:
    """What Ada's runs may say."""
    runs: tuple[dict[str, Any], ...] = (
        {},
        {"config": {"configurable": {"user_id": "ada"}}},
        {"config": {"configurable": {"user_id": "bo"}}},
        {"context": {"conversation_id": "bo's thread"}},
    )
    for run in runs:
        print(
            f"{'refused' if names_another({'kwargs': run}, 'ada') else 'runs':<8} {run or 'nothing of a scope'}"
        )


if __name__ == "__main__":
    main()
