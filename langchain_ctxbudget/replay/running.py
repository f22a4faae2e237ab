"""Replays a conversation turn by turn with several strategies, and counts what each would send."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from langchain_core.embeddings import Embeddings
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage

from langchain_ctxbudget.errors import BudgetError, EmptyMessageError, InputError, checks_names
from langchain_ctxbudget.messages import checked_messages, one_line, plain_text, split_instructions
from langchain_ctxbudget.prompt import common_prefix
from langchain_ctxbudget.providers import CacheTerms
from langchain_ctxbudget.replay.contenders import (
    DEFAULT_STRATEGIES,
    PromptMaker,
    ReplayedPrompt,
    Strategy,
    contender,
    tools_tokens,
)
from langchain_ctxbudget.replay.evidence import Conversation, LineReader, Shown, Use, items_of
from langchain_ctxbudget.replay.result import (
    Loss,
    ReplayResult,
    Sent,
    Track,
    Turn,
    together,
    track_of,
)
from langchain_ctxbudget.replay.tariff import Pricing
from langchain_ctxbudget.replay.turns import answers_in, split_turns
from langchain_ctxbudget.settings import ContextSettings
from langchain_ctxbudget.tokens import Price, TokenCounter, counter_for


@checks_names(ContextSettings.model_fields)
def replay(
    messages: Sequence[BaseMessage],
    strategies: Sequence[Strategy] = DEFAULT_STRATEGIES,
    *,
    budget: int,
    system_prompt: str = "",
    tools: Sequence[Any] = (),
    model: str | None = None,
    settings: ContextSettings | Mapping[str, Any] | None = None,
    embeddings: Embeddings | None = None,
    price: Price | str | None = None,
    summary_model: str | BaseChatModel | None = None,
    evidence: Mapping[int, Iterable[str]] | None = None,
    on_turn: Callable[[str, int], None] | None = None,
) -> "ReplayResult":
    """Replays a conversation with each of several strategies, each of which has a store of its own.

    Args:
        messages: the conversation, oldest message first.
        strategies: names, or settings. An allocation strategy (`"elastic"`, `"ratio"`, `"fixed"`,
            `"dynamic"`, `"prioritized"`, or a mapping with its parameters); an emphasis
            (`"recall"`, `"cache"`); `"recency"` (LangChain's `trim_messages`, the newest messages
            that fit); `"summarization"` (LangChain's `SummarizationMiddleware`, which sums up at
            the budget); `"full"` (the whole history, no limit); or a mapping of any other settings.
            A number behind a name is another budget: `"recency@4000"`.
        budget: the most that a prompt may cost, in tokens.
        system_prompt: of every prompt; default: the system messages that the conversation begins
            with.
        tools: sent with every prompt of every strategy.
        model: counts are this model's, prompts are within its window; default: o200k_base, no
            window.
        settings: of the package's strategies, below their own. Nothing is learned unless they say
            `"learn": True`.
        embeddings: for retrieval; default: the package's own.
        price: in US dollars, or the name of a model whose price and cache terms hold; default:
            those of `model`. Where only one of the two names a model, it is both. Where none does,
            a cached token counts a tenth, and no dollars are told.
        summary_model: what `"summarization"` sums up with: a chat model, or a name as
            `init_chat_model` takes it.
        evidence: ids of the messages that a turn is about, by the turn's number. What the answers
            used of earlier messages is found without it.
        on_turn: called behind every turn with the strategy's name and the turn's number.

    Raises:
        InputError: The conversation has nothing to replay, or an argument is out of range.
    """
    instructions, dialogue = split_instructions(checked_messages(messages, "messages"))
    turns = split_turns(dialogue)
    _require_replayable(turns, budget, evidence or {})
    instruction_text = system_prompt or "\n\n".join(instructions)
    pricing = Pricing.of(model, price)
    model = pricing.counted_model
    contenders = _contenders(
        strategies,
        budget,
        settings=settings,
        embeddings=embeddings,
        system_prompt=instruction_text,
        tools=tools,
        model=model,
        terms=pricing.terms,
        summary_model=summary_model,
    )
    counter = counter_for(model)
    meter = Meter(counter, pricing.terms, model)
    reader = LineReader()
    conversation = Conversation(dialogue, reader)
    trace = Trace(
        turns=turns,
        uses=uses_by_answer(conversation, turns, items_of(instruction_text)),
        reader=reader,
        evidence_texts=_evidence_texts(dialogue, evidence or {}),
    )
    tracks: list[Track] = []
    for maker in contenders:
        with closing(maker):
            replayed = [*_turns(maker, trace, meter, on_turn)]
        tracks.append(track_of(maker.name, replayed, pricing.price))
    return ReplayResult(
        messages=len(dialogue),
        budget_tokens=budget,
        tracks=tuple(tracks),
        tokenizer=counter.name,
        count_mode=counter.mode,
        tariff=pricing.tariff,
    )


def require_usable(
    strategies: Sequence[Strategy],
    *,
    budget: int,
    settings: ContextSettings | Mapping[str, Any] | None = None,
    model: str | None = None,
    price: Price | str | None = None,
    summary_model: str | BaseChatModel | None = None,
) -> None:
    """Raises what `replay` would raise for its options, before there are any messages.

    Raises:
        InputError: An option is out of range, or no price is known for a model.
        InvalidSettingsError: There is no such strategy or setting.
    """
    _require_budget(budget)
    pricing = Pricing.of(model, price)
    makers = _contenders(
        strategies,
        budget,
        settings=settings,
        model=pricing.counted_model,
        terms=pricing.terms,
        summary_model=summary_model,
    )
    for maker in makers:
        maker.close()


def _contenders(
    strategies: Sequence[Strategy],
    budget: int,
    **options: Any,  # noqa: ANN401 - those of `contender`
) -> list[PromptMaker]:
    """Returns the makers of the prompts of some strategies.

    Raises:
        InputError: There are none, or one stands there twice.
    """
    makers = [contender(strategy, budget, **options) for strategy in strategies]
    names = [maker.name for maker in makers]
    if not names or len(set(names)) < len(names):
        raise InputError(f"strategies must be at least one, each of them once, not {names}")
    return makers


def has_answers(messages: Sequence[BaseMessage]) -> bool:
    """Tells if a conversation has an answer of a model that follows a message."""
    _, dialogue = split_instructions(checked_messages(messages, "messages"))
    return any(map(answers_in, split_turns(dialogue)))


def _require_replayable(
    turns: Sequence[Sequence[BaseMessage]], budget: int, evidence: Mapping[int, Iterable[str]]
) -> None:
    """Raises an `InputError` for what cannot be replayed."""
    if not any(map(answers_in, turns)):
        raise InputError(
            "Nothing to replay: the conversation has no answer of a model that follows a message"
        )
    _require_budget(budget)
    unknown = sorted(set(evidence) - set(range(1, len(turns) + 1)))
    if unknown:
        raise InputError(
            f"evidence is for turns {unknown}, but the conversation has turns 1 to {len(turns)}"
        )


def _require_budget(budget: int) -> None:
    """Raises an `InputError` for what is no number of tokens."""
    if type(budget) is not int or budget < 1:
        raise InputError(f"budget must be at least 1 token, not {budget!r}")


def _evidence_texts(
    messages: Iterable[BaseMessage], evidence: Mapping[int, Iterable[str]]
) -> dict[int, list[str]]:
    """Returns the texts of the messages that each turn is about, by the turn's number."""
    text_by_id = {message.id: one_line(plain_text(message)) for message in messages}
    texts: dict[int, list[str]] = {}
    for number, message_ids in evidence.items():
        texts[number] = [text_by_id[each] for each in message_ids if each in text_by_id]
    return texts


class Meter:
    """Counts prompts, each message once, and what they cost."""

    def __init__(self, counter: TokenCounter, terms: CacheTerms, model: str | None) -> None:
        self.counter = counter
        self.terms = terms
        self.model = model
        self._counted: dict[int, tuple[BaseMessage, int]] = {}

    def tokens_of(self, message: BaseMessage) -> int:
        """Returns the tokens of a message."""
        # The message is kept, so that no other one gets its address.
        counted = self._counted.get(id(message))
        if counted is None:
            counted = (message, self.counter.count_message(message))
            self._counted[id(message)] = counted
        return counted[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """A conversation that is replayed, and what is looked for in its prompts."""

    turns: Sequence[Sequence[BaseMessage]]
    uses: Mapping[int, Sequence[Use]]
    """What each answer used of earlier messages, by its position in the conversation."""
    reader: LineReader
    evidence_texts: Mapping[int, Sequence[str]]
    """The texts that a turn is about, by its number, where somebody has named them."""


def uses_by_answer(
    conversation: Conversation,
    turns: Iterable[Sequence[BaseMessage]],
    instruction_items: frozenset[str],
) -> dict[int, tuple[Use, ...]]:
    """Returns what each answer used of the messages before the last exchange, by its position.

    The last exchange is the model's message before the answer and all that has come since; what it
    says, what the user's message of the turn says, and the instructions need no memory.
    """
    uses: dict[int, tuple[Use, ...]] = {}
    begin = 0
    last_answer = 0
    for turn in turns:
        known = instruction_items | conversation.items(begin, begin + 1)
        for place in answers_in(turn):
            answer = begin + place
            uses[answer] = conversation.uses(answer, last_answer, known)
            last_answer = answer
        begin += len(turn)
    return uses


def _turns(
    maker: PromptMaker,
    trace: Trace,
    meter: Meter,
    on_turn: Callable[[str, int], None] | None,
) -> Iterator[Turn]:
    """Makes a prompt for every answer, and yields the turns that have answers."""
    tools_cost = tools_tokens(meter.counter, meter.model, maker.tools)
    history: list[BaseMessage] = []
    previous: Sequence[BaseMessage] = ()
    for number, turn in enumerate(trace.turns, 1):
        sent: list[Sent] = []
        prompt = ReplayedPrompt((), {})
        for position in answers_in(turn):
            uses = trace.uses[len(history) + position]
            try:
                prompt = maker.prompt(history, turn[:position])
            except (BudgetError, EmptyMessageError) as error:
                sent.append(_not_made(error, number, uses))
                continue
            counted = _sent(prompt, previous, tools_cost, meter)
            found = _found(uses, prompt, trace.reader, number)
            sent.append(
                replace(
                    counted,
                    used_weight=_weight_of(uses),
                    kept_weight=found.kept_weight,
                    losses=found.losses,
                )
            )
            previous = prompt.messages
        if sent:
            yield Turn(
                **together(sent),
                number=number,
                messages=prompt.states,
                evidence=_evidence_share(prompt, trace.evidence_texts.get(number, ())),
            )
        history += turn
        if on_turn:
            on_turn(maker.name, number)


def _not_made(error: Exception, turn: int, uses: Sequence[Use]) -> Sent:
    """Returns the figures of a prompt that could not be made."""
    failure = f"turn {turn}: {type(error).__name__}: {error}"
    return Sent(failures=(failure,), prompt_costs=(None,), used_weight=_weight_of(uses))


def _weight_of(uses: Sequence[Use]) -> float:
    """Returns the weight of all that an answer used."""
    return sum(use.weight for use in uses)


def _sent(
    prompt: ReplayedPrompt,
    previous: Sequence[BaseMessage],
    tools_cost: int,
    meter: Meter,
) -> Sent:
    """Counts a prompt, and what of it the previous one has already."""
    counter = meter.counter
    costs = [meter.tokens_of(message) for message in prompt.messages]
    tokens = tools_cost + sum(costs) + counter.count_messages([])
    shared_tokens, _ = common_prefix(prompt.messages, costs, previous, counter)
    if previous:
        shared_tokens += tools_cost
    own_tokens = prompt.own_effective_tokens
    cost = round(meter.terms.cost(tokens, shared_tokens) + own_tokens, 3)
    return Sent(
        calls=1,
        tokens=tokens,
        cached_tokens=meter.terms.read_tokens(shared_tokens),
        effective_tokens=cost,
        own_effective_tokens=own_tokens,
        prompt_costs=(cost,),
        largest_tokens=tokens,
        compaction_steps=int(prompt.compaction_step),
    )


@dataclass(frozen=True, slots=True)
class _Found:
    """What of the uses of an answer its prompt has, and the weightiest that it has not."""

    kept_weight: float
    losses: tuple[Loss, ...]


def _found(uses: Sequence[Use], prompt: ReplayedPrompt, reader: LineReader, turn: int) -> _Found:
    """Looks for the uses of an answer in its prompt."""
    if not uses:
        return _Found(0.0, ())
    lines = chain.from_iterable(map(reader.lines, prompt.messages))
    shown = Shown(lines, uses)
    kept_weight = 0.0
    losses: list[Loss] = []
    for use in uses:
        kept = use.weight * shown.share(use)
        kept_weight += kept
        if kept < use.weight:
            losses.append(_loss(use, shown, turn, use.weight - kept))
    weightiest = sorted(losses, key=lambda loss: -loss.weight)[:1]
    return _Found(kept_weight, tuple(weightiest))


def _loss(use: Use, shown: Shown, turn: int, weight: float) -> Loss:
    """Returns a use that a prompt does not have, as it is told."""
    return Loss(
        turn=turn,
        items=shown.missing(use),
        message=use.message + 1,
        sentence=use.sentence,
        weight=weight,
    )


def _evidence_share(prompt: ReplayedPrompt, texts: Sequence[str]) -> float | None:
    """Returns the share of some texts that stand in a prompt; None for no texts."""
    if not texts:
        return None
    prompt_text = one_line("\n".join(message.text for message in prompt.messages))
    return sum(text in prompt_text for text in texts) / len(texts)
