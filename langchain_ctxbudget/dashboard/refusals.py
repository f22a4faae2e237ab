"""Why a request may not be answered as asked."""

from __future__ import annotations

from collections.abc import Mapping

BAD, UNKNOWN, CONFLICT, TOO_LARGE, NO_JSON = 400, 404, 409, 413, 415
NOT_SIGNED_IN, FORBIDDEN, MISDIRECTED, UNAVAILABLE = 401, 403, 421, 503
ALWAYS: Mapping[int, str] = {
    NOT_SIGNED_IN: "No token or a wrong one, or nobody is signed in.",
    FORBIDDEN: "The request comes from another site, or from another machine where no token was set.",
    MISDIRECTED: "The request names a host that this dashboard is not.",
    UNAVAILABLE: "The store, or a part of the pipeline, cannot be used at the moment; the server's log says why.",
}
"""What every operation may be answered with instead."""
SOMETIMES: Mapping[int, str] = {
    BAD: "A parameter is missing, given twice, or outside its range.",
    UNKNOWN: "The user has no such session, snapshot, message or fact.",
    CONFLICT: "It cannot be done as things are.",
    TOO_LARGE: "The body is larger than 64 KiB.",
    NO_JSON: "The body is not sent as application/json.",
}


class RefusedError(Exception):
    """A request that is not answered as asked."""

    def __init__(self, status: int, problem: str) -> None:
        super().__init__(problem)
        self.status = status
