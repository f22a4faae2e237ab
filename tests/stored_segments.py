"""Segments as a store holds them: who writes them, and what is in them."""

import zlib
from collections.abc import Iterable

from langgraph.store.base import BaseStore, Op, PutOp, Result

from langchain_ctxbudget.history import SEGMENTS
from tests.log_contract import Elsewhere


def seals(op: Op) -> bool:
    """Whether it writes or deletes a part of a segment."""
    return isinstance(op, PutOp) and SEGMENTS in op.namespace


class KilledError(BaseException):
    """Ends a process in the middle of what it does."""


class Mortal(Elsewhere):
    """A store whose process is killed after so many writes of segments."""

    def __init__(self, store: BaseStore, writes: int) -> None:
        super().__init__(store)
        self.writes_left = writes

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        operations = list(ops)
        if any(map(seals, operations)):
            if self.writes_left == 0:
                raise KilledError
            self.writes_left -= 1
        return super().batch(operations)


def inflated(packed: bytes) -> bytes:
    """The texts of parts that are packed one after the other."""
    unpacked = b""
    while packed:
        inflating = zlib.decompressobj()
        unpacked += inflating.decompress(packed)
        packed = inflating.unused_data
    return unpacked
