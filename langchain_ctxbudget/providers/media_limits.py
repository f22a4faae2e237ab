"""Leaves out media beyond what a provider takes in one request; a line tells of each.

A medium that the provider refuses even alone, such as an image with too long a side, is left out
wherever it stands, before anything is counted: it needs no room. Where the media of a request are
too many or too large together, the oldest give way first. Several give way at a time, so that the
beginning of a conversation does not change with every new picture.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil

from langchain_core.messages import BaseMessage

from langchain_ctxbudget.content import Medium, has_media, measures_of, parts_of
from langchain_ctxbudget.messages import without_media
from langchain_ctxbudget.providers.media_rules import MediaLimits
from langchain_ctxbudget.providers.profile import Profile
from langchain_ctxbudget.providers.stretch import Change, Repair

LeftOut = Mapping[int, frozenset[int]]
"""Which media are left out: by the number of the message, their numbers among its media."""
_STEP_SHARE = 4
"""They give way a quarter at a time of what the provider takes."""


@dataclass(frozen=True, slots=True)
class MeasuredMedium:
    """What limits look at of a medium; its bytes are not kept."""

    is_image: bool
    sent_bytes: int
    """How many bytes of the request it takes."""
    longest_side: int
    """The longest side of an image in pixels; 0 where it is not known."""
    pages: int

    @classmethod
    def of(cls, medium: Medium) -> "MeasuredMedium":
        """Measures a medium."""
        payload = medium.payload
        in_base64 = isinstance(payload, str)
        measures = measures_of(medium)
        return cls(
            is_image=medium.kind == "image",
            sent_bytes=len(payload) if in_base64 else ceil(len(payload) / 3) * 4,
            longest_side=max(measures.size) if measures.size is not None else 0,
            pages=measures.pages or 0,
        )


@dataclass(frozen=True, slots=True)
class _Placed:
    """A medium in a request."""

    message: int
    number: int
    """Which one it is among the media of its message."""
    medium: MeasuredMedium

    @property
    def place(self) -> tuple[int, int]:
        return self.message, self.number


def measured_media(message: BaseMessage) -> tuple[MeasuredMedium, ...]:
    """Returns the media of a message, measured."""
    if not has_media(message):
        return ()
    media = (part.medium for part in parts_of(message))
    return tuple(MeasuredMedium.of(medium) for medium in media if medium is not None)


def without_refused_media(
    message: BaseMessage, profile: Profile
) -> tuple[BaseMessage, Sequence[Change]]:
    """Returns a message without media that the provider refuses even alone, and what was changed.

    The lines in their place name no reference: a tool that showed them again would be refused.
    """
    numbers = refused_alone(message, profile.media.limits)
    if not numbers:
        return message, ()
    change = Change("media", _detail_of(numbers))
    return without_media(message, only=numbers), [change]


def refused_alone(message: BaseMessage, limits: MediaLimits) -> frozenset[int]:
    """Returns the numbers of the media of a message that a provider refuses even alone."""
    media = enumerate(measured_media(message))
    return frozenset(number for number, medium in media if _is_refused(medium, limits))


def within_media_limits(
    messages: Sequence[BaseMessage], profile: Profile
) -> tuple[list[BaseMessage], list[Repair]]:
    """Returns messages with no more media than a provider takes in a request, and the repairs."""
    left_out = media_left_out(messages, profile.media.limits)
    kept = list(messages)
    repairs: list[Repair] = []
    for at, numbers in left_out.items():
        kept[at] = without_media(messages[at], only=numbers)
        repairs.append(repair_of(messages[at], numbers))
    return kept, repairs


def repair_of(message: BaseMessage, numbers: frozenset[int]) -> Repair:
    """Returns the repair that tells of media that are left out of a message."""
    return Repair("media", message.id or "", _detail_of(numbers))


def _detail_of(numbers: frozenset[int]) -> str:
    """Returns what a report says of a message that has lost some media."""
    media = "a line in place of a medium" if len(numbers) == 1 else "lines in place of media"
    return f"sent with {media} beyond what the provider takes in one request"


def media_left_out(messages: Sequence[BaseMessage], limits: MediaLimits) -> LeftOut:
    """Returns which media of a request a provider would refuse; nothing where it takes all."""
    return media_beyond([*map(measured_media, messages)], limits)


def media_beyond(
    media_of_messages: Sequence[Sequence[MeasuredMedium]], limits: MediaLimits
) -> LeftOut:
    """Returns the same for messages of which only the media are given."""
    media: list[_Placed] = []
    for at, of_message in enumerate(media_of_messages):
        media += [_Placed(at, number, medium) for number, medium in enumerate(of_message)]
    if not media:
        return {}
    accepted = [placed for placed in media if not _is_refused(placed.medium, limits)]
    staying = {placed.place for placed in _staying(accepted, limits)}

    numbers: defaultdict[int, set[int]] = defaultdict(set)
    for placed in media:
        if placed.place not in staying:
            numbers[placed.message].add(placed.number)
    return {message: frozenset(of_message) for message, of_message in numbers.items()}


def _staying(media: Sequence[_Placed], limits: MediaLimits) -> Sequence[_Placed]:
    """Returns the newest of some media, as many as a provider takes together.

    At least the newest one stays.
    """
    fewest = _fewest_left_out(media, limits)
    if not fewest:
        return media
    step = max(1, (len(media) - fewest) // _STEP_SHARE)
    in_steps = ceil(fewest / step) * step
    return media[min(in_steps, len(media) - 1) :]


def _is_refused(medium: MeasuredMedium, limits: MediaLimits) -> bool:
    """Tells if a provider refuses a medium for itself."""
    if _is_over(medium.sent_bytes, limits.request_bytes):
        return True
    if medium.is_image:
        return _is_over(medium.longest_side, limits.longest_side) or _is_over(
            medium.sent_bytes, limits.image_bytes
        )
    return _is_over(medium.sent_bytes, limits.file_bytes) or _is_over(
        medium.pages, limits.most_pages
    )


def _fewest_left_out(media: Sequence[_Placed], limits: MediaLimits) -> int:
    """Returns how many of the oldest media must be left out so that the rest is accepted.

    The newest one always stays.
    """
    load = _Load()
    for staying, placed in enumerate(reversed(media)):
        load.add(placed.medium)
        if staying and load.is_over(limits):
            return len(media) - staying
    return 0


@dataclass(slots=True)
class _Load:
    """What the media of a request take together."""

    images: int = 0
    request_bytes: int = 0
    pages: int = 0
    longest_side: int = 0
    """Pixels of the longest side of any image."""

    def add(self, medium: MeasuredMedium) -> None:
        """Adds a medium."""
        if medium.is_image:
            self.images += 1
        self.request_bytes += medium.sent_bytes
        self.pages += medium.pages
        self.longest_side = max(self.longest_side, medium.longest_side)

    def is_over(self, limits: MediaLimits) -> bool:
        """Tells if it is more than a provider takes in a request."""
        if _is_over(self.images, limits.many_images) and _is_over(
            self.longest_side, limits.longest_side_of_many
        ):
            return True
        return (
            _is_over(self.images, limits.most_images)
            or _is_over(self.request_bytes, limits.request_bytes)
            or _is_over(self.pages, limits.most_pages)
        )


def _is_over(value: int, limit: int | None) -> bool:
    """Tells if a value is over a limit, if there is one."""
    return limit is not None and value > limit
