"""The command that a hint names installs an extra from where the package came from."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from langchain_ctxbudget.installing import command_for, install_command

ORIGINS: Mapping[str, Mapping[str, Any] | None] = {
    "pip install 'langchain-ctxbudget[agents]'": None,
    "pip install '/home/ada/my clone[agents]'": {
        "url": "file:///home/ada/my%20clone",
        "dir_info": {},
    },
    "pip install -e '/home/ada/clone[agents]'": {
        "url": "file:///home/ada/clone",
        "dir_info": {"editable": True},
    },
    "pip install 'langchain-ctxbudget[agents] @ git+https://example.com/x.git@c0ffee'": {
        "url": "https://example.com/x.git",
        "vcs_info": {"vcs": "git", "commit_id": "c0ffee"},
    },
    "pip install 'langchain-ctxbudget[agents] @ file:///tmp/x-0.1.0-py3-none-any.whl'": {
        "url": "file:///tmp/x-0.1.0-py3-none-any.whl",
        "archive_info": {},
    },
}


@pytest.mark.parametrize("command", ORIGINS)
def test_an_extra_comes_from_where_the_package_came_from(command: str) -> None:
    origin = ORIGINS[command]

    assert command_for(origin and json.dumps(origin), "agents") == command


def test_without_an_extra_the_package_is_installed_alone() -> None:
    assert command_for(None) == "pip install langchain-ctxbudget"


def test_the_command_of_this_installation_names_the_extra() -> None:
    assert install_command("dashboard").startswith("pip install ")
    assert "[dashboard]" in install_command("dashboard")
