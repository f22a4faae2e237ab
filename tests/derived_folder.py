"""Derived data in a plain folder: another place for it than a store."""

import json
import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote, unquote

from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget.flow import Flow, in_thread
from langchain_ctxbudget.stores import Address, Scope, Value, label

T = TypeVar("T")


class DerivedFolder:
    """A folder with a file for each piece: `user/kind/conversation/key.json`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def get(self, addresses: Sequence[Address]) -> Flow[list[Value | None]]:
        return _done(lambda: [_read(self._file(address)) for address in addresses])

    def put(self, pieces: Mapping[Address, Value]) -> Flow[None]:
        return _done(lambda: self._write(pieces))

    def forget(self, addresses: Collection[Address]) -> Flow[None]:
        return _done(lambda: self._delete(addresses))

    def keys(self, scope: Scope, kind: str) -> Flow[list[str]]:
        folder = self._folder(scope, kind)
        return _done(lambda: [unquote(file.stem) for file in folder.glob("*.json")])

    def erase(self, user_id: str, kind: str) -> Flow[int]:
        return _done(lambda: self._erase(self.path / label(user_id) / kind))

    def files(self) -> list[str]:
        """The path of every file, for tests."""
        return sorted(str(file.relative_to(self.path)) for file in self.path.rglob("*.json"))

    def _folder(self, scope: Scope, kind: str) -> Path:
        return self.path / label(scope.user_id) / kind / label(scope.conversation_id)

    def _file(self, address: Address) -> Path:
        name = quote(address.key, safe=" ")
        return self._folder(address.scope, address.kind) / f"{name}.json"

    def _write(self, pieces: Mapping[Address, Value]) -> None:
        for address, value in pieces.items():
            file = self._file(address)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(value), encoding="utf-8")

    def _delete(self, addresses: Collection[Address]) -> None:
        for address in addresses:
            self._file(address).unlink(missing_ok=True)

    def _erase(self, folder: Path) -> int:
        count = sum(1 for _ in folder.rglob("*.json"))
        shutil.rmtree(folder, ignore_errors=True)
        return count


def _done(work: Callable[[], T]) -> Flow[T]:
    result: T = yield in_thread(work)
    return result


def _read(file: Path) -> Value | None:
    with suppress(OSError, ValueError):
        value = json.loads(file.read_text(encoding="utf-8"))
        return value if isinstance(value, dict) else None
    return None


class StoreBesideFolder(InMemoryStore):
    """A store that keeps what is derived from messages in a folder."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.derived = DerivedFolder(path)
