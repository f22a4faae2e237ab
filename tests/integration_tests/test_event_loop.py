"""Async ways in do not block the event loop, not even where they are used first."""

import json
import subprocess
import sys

import pytest

from tests.servers import LOOPBACK

pytest.importorskip("blockbuster")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["default", "folder", pytest.param("server", marks=LOOPBACK)])
def test_no_async_way_in_blocks_the_event_loop_when_it_is_used_first(
    kind: str, request: pytest.FixtureRequest
) -> None:
    where = request.getfixturevalue("chroma_server") if kind == "server" else kind
    command = [sys.executable, "-m", "tests.integration_tests.first_uses", where]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert not ran.returncode, ran.stderr
    assert not {way: found for way, found in json.loads(ran.stdout).items() if found}
