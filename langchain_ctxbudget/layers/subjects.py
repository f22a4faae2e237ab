"""Topics and entities as items: what both of their layers have in common."""

from collections.abc import Sequence

from langchain_ctxbudget.budget import Fragment, LayerSpec, Reason, Status
from langchain_ctxbudget.knowledge import Found, Subject, left_out_item
from langchain_ctxbudget.layers.base import Chosen, Place, PromptLayer, View
from langchain_ctxbudget.messages import Count
from langchain_ctxbudget.report import ReportItem
from langchain_ctxbudget.search import shrink_to


class SubjectsLayer(PromptLayer):
    """What is known of some kind of subject that the message is about."""

    place = Place.BACKGROUND

    def found(self, view: View) -> Found:
        """Returns the subjects of this kind that the message is about, and those left out."""
        raise NotImplementedError

    def section_tokens(self, view: View) -> int:
        """Returns what the line above the items costs; 0 where there are none.

        A budget counts it as overhead, because the grant is for items alone.
        """
        return view.counter.count_text(self.section) if self.found(view).subjects else 0

    def wider_tokens(
        self, spec: LayerSpec, granted_tokens: int, most_tokens: int, view: View
    ) -> int | None:
        """Returns the grant with what others leave; the line above the items comes on top of it."""
        items_tokens = most_tokens - view.counter.count_text(self.section)
        return super().wider_tokens(spec, granted_tokens, items_tokens, view)

    def given(self, view: View, fragments: tuple[Fragment, ...]) -> Chosen:
        """Returns items that somebody else has written, beside those that were not detected."""
        found = self.found(view)
        return Chosen(
            fragments=fragments,
            left_out=lambda: found.omitted,
            more_left_out=found.more_omitted,
            is_given=True,
        )

    def compiled(self, view: View, _chosen: Chosen) -> dict[str, bool]:
        """Returns the compiled texts that are used, and whether each was there."""
        return {
            subject.id: bool(subject.line)
            for subject in self.found(view).subjects
            if subject.is_learned
        }

    def chosen(
        self, found: Found, shown: Sequence[Subject], items: Sequence[Fragment | None], count: Count
    ) -> Chosen:
        """Returns the texts of subjects, with an account of all others.

        Args:
            found: All that the message is about.
            shown: Those that may be shown.
            items: Their texts; None for one that has no room.
            count: Counts the tokens of a text.
        """
        without_room = [subject for subject, item in zip(shown, items, strict=True) if item is None]
        omitted = (*found.omitted, *_left_out(found, shown, without_room, count))
        return Chosen(
            fragments=tuple(item for item in items if item is not None),
            left_out=lambda: omitted,
            more_left_out=found.more_omitted,
            lacks_room=bool(without_room),
        )

    def item(self, subject: Subject, rank: int, room_tokens: int, count: Count) -> Fragment | None:
        """Returns the text of a subject, shrunk to its room; None where nothing fits."""
        text = subject.line
        reason = Reason.DETECTED
        status = Status.INCLUDED
        if count(text) > room_tokens:
            text = _shrunk(subject, room_tokens, count)
            reason = Reason.NO_ROOM
            status = Status.SHRUNK
        if not text:
            return None
        scores = {}
        if subject.is_learned:
            scores["confidence"] = subject.confidence
        return Fragment(
            layer=self.name,
            id=subject.id,
            text=text,
            tokens=count(text),
            reason=reason,
            status=status,
            section=self.section,
            value=-float(rank),
            scores=scores,
        )


def _left_out(
    found: Found, shown: Sequence[Subject], without_room: Sequence[Subject], count: Count
) -> list[ReportItem]:
    """Returns the subjects that are left out: without a text, without room, or too many."""
    with_text = [subject for subject in found.subjects if subject.line]
    without_text = [subject for subject in found.subjects if not subject.line]
    items = [
        left_out_item(subject.id, subject.id, Reason.NOT_COMPILED, count)
        for subject in without_text
    ]
    items += [
        left_out_item(subject.id, subject.line, Reason.NO_ROOM, count) for subject in without_room
    ]
    items += [
        left_out_item(subject.id, subject.line, Reason.RANKED_LOWER, count)
        for subject in with_text[len(shown) :]
    ]
    return items


def _shrunk(subject: Subject, room_tokens: int, count: Count) -> str:
    """Returns the first lines of a compiled text, or sentences of a declared one, that fit a room.

    Of the line at which the room ends, its first sentences do. Empty where nothing fits, or only
    the name.
    """
    if not subject.is_learned:
        sentences = shrink_to(subject.line[:-1], lambda part: count(f"{part}\n"), room_tokens)
        return f"{sentences}\n" if sentences else ""

    name, *lines = subject.line.splitlines(keepends=True)
    shown = name
    for line in lines:
        if count(shown + line) > room_tokens:
            shown += _first_sentences(line, shown, room_tokens, count)
            break
        shown += line
    return "" if shown == name else shown


def _first_sentences(line: str, shown: str, room_tokens: int, count: Count) -> str:
    """Returns the first sentences of a line that fit a room behind what is shown already."""
    sentences = shrink_to(line.strip(), lambda part: count(f"{shown} {part}\n"), room_tokens)
    return f" {sentences}\n" if sentences else ""
