"""No async way in blocks the event loop, not even where it is used first."""

import json
import subprocess
import sys

import pytest

from tests.servers import LOOPBACK

pytest.importorskip("blockbuster")


def blocking_calls(where: str) -> dict[str, list[str]]:
    """Returns what blocked the event loop in a process of its own, by way in."""
    command = [sys.executable, "-m", "tests.integration_tests.first_uses", where]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    calls = json.loads(process.stdout)
    assert len(calls) > 0
    return {way: blocking for way, blocking in calls.items() if blocking}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["default", "folder"])
def test_no_async_way_in_blocks_the_event_loop_at_first_use(kind: str) -> None:
    assert blocking_calls(kind) == {}


@pytest.mark.slow
@LOOPBACK
def test_no_async_way_in_to_a_server_blocks_the_event_loop(chroma_server: str) -> None:
    assert blocking_calls(chroma_server) == {}
