"""A small MCP server over stdio, with forty tools; a test starts it as a program."""

from collections.abc import Callable

from mcp.server.fastmcp import FastMCP


def reader(number: int) -> Callable[[str], str]:
    """Returns a tool that reads one note."""

    def note(topic: str) -> str:
        return f"note {number} about {topic}"

    return note


if __name__ == "__main__":
    server = FastMCP("notes")
    for number in range(40):
        server.add_tool(
            reader(number),
            name=f"note_{number}",
            description=f"Reads note number {number} about a topic of the garden.",
        )
    server.run("stdio")
