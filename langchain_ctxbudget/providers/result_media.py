"""Media of results behind these, where a provider takes text alone in the result of a tool.

The result says that a message behind it shows the medium, and so an agent that looks at a screen
sees it. This is done to a finished request: until then a medium stands in its result, and gives way
with it. Whoever counts a result counts both messages (`TokenCounter.count_message`).
"""

from dataclasses import replace

from langchain_core.messages import BaseMessage, HumanMessage, ToolMessage

from langchain_ctxbudget.content import Part, has_media, parts_of, text_part, with_parts
from langchain_ctxbudget.providers.media_forms import MediaInResults
from langchain_ctxbudget.providers.profile import Profile
from langchain_ctxbudget.providers.stretch import Change, Placed, Repair, Stretch

_FOLLOWS = "[{medium}: in the message behind these results]"
_SHOWN = "[From the result of {tool}]"
_IS_BEHIND = Change("media", "its media stand in a message of the user behind the results")


def shows_media_behind(profile: Profile) -> bool:
    """Tells if media of results stand in messages of the user behind these."""
    forms = profile.media_forms
    return forms is not None and forms.in_results is MediaInResults.BEHIND


def with_name_to_show(result: BaseMessage, call_name: str, profile: Profile) -> BaseMessage:
    """Returns a result with the name that the message behind it tells: its own, or its call's.

    Only a result whose media stand behind it is named, before it is counted.
    """
    if result.name or not shows_media_behind(profile) or not has_media(result):
        return result
    return result.model_copy(update={"name": call_name})


def with_media_behind(result: BaseMessage) -> list[BaseMessage]:
    """Returns a result and the message that shows its media; any other message alone."""
    is_result = isinstance(result, ToolMessage) and not isinstance(result.content, str)
    if not is_result or not has_media(result):
        return [result]
    inside: list[Part] = []
    shown = [text_part(_SHOWN.format(tool=result.name or "a tool"))]
    for part in parts_of(result):
        if part.is_media:
            inside.append(text_part(_FOLLOWS.format(medium=part.name)))
            shown.append(part)
        else:
            inside.append(part)
    content = [part.block for part in shown]
    return [with_parts(result, inside), HumanMessage(content)]


def with_media_behind_results(stretch: Stretch, profile: Profile) -> tuple[Stretch, list[Repair]]:
    """Returns a request with the media of results in messages of the user behind their round."""
    if not shows_media_behind(profile):
        return stretch, []
    sent: list[Placed] = []
    behind: list[Placed] = []
    repairs: list[Repair] = []
    for placed in stretch.placed:
        if not isinstance(placed.message, ToolMessage):
            sent += behind
            behind = []
        result, *shown = with_media_behind(placed.message)
        sent.append(Placed(result, placed.position))
        if shown:
            behind += [Placed(message, placed.position) for message in shown]
            repairs.append(_IS_BEHIND.repair_of(placed.message))
    return replace(stretch, placed=[*sent, *behind]), repairs
