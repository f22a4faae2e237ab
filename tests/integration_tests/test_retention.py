"""What is older than a policy says is erased, with all that was made of it, and nothing else."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langgraph.store.base import BaseStore, Op, PutOp, Result
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import ChromaStore, ContextPipeline, RetentionPolicy, SweepResult
from langchain_ctxbudget.errors import InvalidSettingsError
from langchain_ctxbudget.stores import label
from tests.integration_tests.learning_models import asks_to_learn
from tests.integration_tests.summary_models import Scripted, learned, summary
from tests.integration_tests.test_export_and_erase import INDEX, everything
from tests.servers import LOOPBACK
from tests.stores import blocking_stores

NOW = datetime.now(UTC)
SETTINGS = {
    "max_context_tokens": 700,
    "span_messages": 4,
    "keep_messages": 4,
    "keep_snapshots": 2,
}
SCOPE: Any = {"user_id": "ada", "conversation_id": "c1"}
OLD = "xylophonic"
"""A word of every message that is too old; the model that summarises and learns repeats it."""
YOUNG = "marmalade"
POLICY = {"messages": 90}
QUESTION = "What stands near the lighthouse?"


def repeat(prompt: str) -> str:
    word = OLD if OLD in prompt else YOUNG
    return learned(word) if asks_to_learn(prompt) else summary(f"It was about {word}.")


def pipeline_over(store: BaseStore, **options: Any) -> ContextPipeline:
    return ContextPipeline(SETTINGS, store=store, **{"summary_model": None, **options})


def question_id(word: str, number: int) -> str:
    return f"{'old' if word == OLD else 'young'}-{number}"


def said(word: str, number: int, days: float) -> list[BaseMessage]:
    """Returns an exchange that was said so many days ago."""
    at = (NOW - timedelta(days=days, minutes=-number)).isoformat()
    dated = {"created_at": at}
    place = "lighthouse" if word == OLD else "harbour"
    return [
        HumanMessage(
            f"I like {word}{number} very much. My {word} stands near the {place}.",
            id=question_id(word, number),
            additional_kwargs=dated,
        ),
        AIMessage(f"{word} {number} is noted.", id=f"a-{days}-{number}", additional_kwargs=dated),
    ]


def exchanges(word: str, count: int, days: float) -> list[BaseMessage]:
    messages: list[BaseMessage] = []
    for number in range(count):
        messages += said(word, number, days)
    return messages


def fill(pipeline: ContextPipeline) -> None:
    """Stores old and young messages, quotes, facts, summaries, and a conversation of old ones."""
    pipeline.add_messages(exchanges(OLD, 8, 100), **SCOPE)
    pipeline.remove_messages(question_id(OLD, 1), on_removal="archive", **SCOPE)
    pipeline.assemble("What is number 2?", **SCOPE)
    pipeline.add_messages(exchanges(YOUNG, 8, 10), **SCOPE)
    pipeline.add_messages(exchanges(OLD, 3, 95), user_id="ada", conversation_id="c2")
    other = pipeline.conversation("c3", user_id="ada")
    other.add(HumanMessage("Good morning."), AIMessage("Hello!"))
    assert pipeline.flush(60)
    context = other.assemble(QUESTION)
    assert OLD in str([message.content for message in context.messages])
    other.add(*context.turn)
    pipeline.assemble(QUESTION, **SCOPE)
    assert pipeline.flush(60)


def with_word(word: str, store: BaseStore) -> list[str]:
    return [text for text in everything(store) if word in text]


STORES = [
    "memory",
    *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("chroma-folder", "postgres")),
    pytest.param("chroma-server", marks=[pytest.mark.slow, LOOPBACK]),
]


@pytest.fixture(params=STORES)
def any_store(request: pytest.FixtureRequest) -> Iterator[BaseStore]:
    with blocking_stores(request.param, request) as new:
        yield new(INDEX)


@pytest.mark.parametrize("model", [None, Scripted(answer=repeat)], ids=["rules", "model"])
def test_nothing_of_an_old_message_is_left(any_store: BaseStore, model: Any) -> None:
    with pipeline_over(any_store, summary_model=model) as pipeline:
        fill(pipeline)
        assert with_word(OLD, any_store) != []

        result = pipeline.sweep(POLICY)

        assert pipeline.flush(60)
        assert with_word(OLD, any_store) == []
        assert result.messages == 2 * 8 + 2 * 3
        assert result.conversations == 1
        assert result.failures == ()


def test_younger_messages_stay(any_store: BaseStore) -> None:
    with pipeline_over(any_store) as pipeline:
        fill(pipeline)
        pipeline.sweep(POLICY)
        left = pipeline.get_messages(**SCOPE)
        assert left == exchanges(YOUNG, 8, 10)
        assert pipeline.list_conversations(user_id="ada") == ["c1", "c3"]


@pytest.mark.slow
def test_a_folder_has_no_byte_of_an_old_message(tmp_path: Path) -> None:
    with ChromaStore(tmp_path, index=INDEX) as store, pipeline_over(store) as pipeline:
        fill(pipeline)
        pipeline.sweep(POLICY)
        assert pipeline.flush(60)
        store.vacuum()
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert [path.name for path in files if OLD.encode() in path.read_bytes()] == []
    assert [path.name for path in files if YOUNG.encode() in path.read_bytes()] != []


def test_another_pipeline_shows_nothing_old_afterwards(store: BaseStore) -> None:
    with pipeline_over(store) as sweeping, pipeline_over(store) as other:
        fill(sweeping)
        other.assemble("What is number 2?", **SCOPE)
        sweeping.sweep(POLICY)

        context = other.assemble("And now?", **SCOPE)

        assert context.report.failures == ()
        assert OLD not in str([message.content for message in context.messages])


@pytest.fixture
def store() -> BaseStore:
    return InMemoryStore()


@pytest.fixture
def pipeline(store: BaseStore) -> Iterator[ContextPipeline]:
    with pipeline_over(store) as opened:
        yield opened


@pytest.mark.slow
async def test_the_async_form_erases_the_same() -> None:
    results = []
    for is_async in (False, True):
        with pipeline_over(InMemoryStore()) as pipeline:
            fill(pipeline)
            if is_async:
                results.append(await pipeline.asweep(POLICY))
            else:
                results.append(pipeline.sweep(POLICY))
    assert results[0] == results[1]


def test_a_second_sweep_erases_nothing(pipeline: ContextPipeline) -> None:
    pipeline.add_messages([*exchanges(OLD, 2, 100), *exchanges(YOUNG, 2, 5)], **SCOPE)
    pipeline.sweep(POLICY)
    assert pipeline.sweep(POLICY) == SweepResult(users=1)


def test_a_dry_run_tells_what_a_sweep_erases(pipeline: ContextPipeline, store: BaseStore) -> None:
    fill(pipeline)
    policy = {"messages": 120, "facts": 7, "snapshots": 30, "derived": 30}
    with pipeline_over(store, clock=lambda: NOW + timedelta(days=40)) as later:
        before = everything(store)
        foretold = later.sweep(policy, dry_run=True)
        assert everything(store) == before
        assert later.sweep(policy) == foretold
    assert foretold.conversations == 1
    assert min(foretold.snapshots, foretold.derived) > 0


def test_one_user_is_swept_alone(pipeline: ContextPipeline) -> None:
    for user in ("ada", "bo"):
        pipeline.add_messages(exchanges(OLD, 1, 100), user_id=user, conversation_id="c1")
    assert pipeline.sweep_user(POLICY, user_id="ada").users == 1
    assert pipeline.list_conversations(user_id="ada") == []
    assert len(pipeline.get_messages(user_id="bo", conversation_id="c1")) == 2


def test_a_user_with_a_long_id_is_named_or_told(pipeline: ContextPipeline) -> None:
    user = "ada" * 100
    pipeline.add_messages(exchanges(OLD, 1, 100), user_id=user, conversation_id="c1")
    assert "users not swept: 1" in pipeline.sweep(POLICY).failures[0]
    assert pipeline.sweep_user(POLICY, user_id=user).messages == 2


def test_messages_that_name_no_time_count_from_when_they_were_stored(
    pipeline: ContextPipeline,
) -> None:
    pipeline.add_messages([HumanMessage("Hello.")], **SCOPE)
    assert pipeline.sweep({"messages": 1}).messages == 0
    with pipeline_over(pipeline.store, clock=lambda: NOW + timedelta(days=2)) as later:
        assert later.sweep({"messages": 1}).messages == 1


def test_old_messages_that_come_later_are_erased_as_well(pipeline: ContextPipeline) -> None:
    pipeline.add_messages(exchanges(YOUNG, 2, 10), **SCOPE)
    pipeline.sweep(POLICY)
    pipeline.add_messages(exchanges(OLD, 1, 100), **SCOPE)
    assert pipeline.sweep(POLICY).messages == 2


class Watched(InMemoryStore):
    """Tells of every operation before it is done."""

    tell: Callable[[Op], object] = staticmethod(lambda _: None)

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        todo = list(ops)
        for operation in todo:
            self.tell(operation)
        return super().batch(todo)


def test_an_unchanged_conversation_is_not_read_again() -> None:
    store = Watched()
    operations: list[Op] = []
    with pipeline_over(store) as pipeline:
        pipeline.add_messages(exchanges(YOUNG, 20, 10), **SCOPE)
        assert pipeline.flush(60)
        pipeline.sweep(POLICY)
        store.tell = operations.append
        pipeline.sweep(POLICY)
    # The users, the lanes of all conversations, and what was noted of this one.
    assert len(operations) == 3
    assert not any(isinstance(operation, PutOp) for operation in operations)


# Facts


def facts(pipeline: ContextPipeline) -> list[str]:
    return [fact.text for fact in pipeline.knowledge.list_facts(user_id="ada")]


def lives_in(place: str, message_id: str, days: float) -> HumanMessage:
    at = (NOW - timedelta(days=days)).isoformat()
    return HumanMessage(f"I live in {place}.", id=message_id, additional_kwargs={"created_at": at})


def test_a_fact_that_a_younger_message_tells_stays(pipeline: ContextPipeline) -> None:
    pipeline.add_messages([lives_in("Leeds", "m1", 100), lives_in("Leeds", "m2", 5)], **SCOPE)
    pipeline.end_session(**SCOPE)
    assert pipeline.flush(60)
    pipeline.sweep(POLICY)
    assert pipeline.flush(60)
    assert len(facts(pipeline)) == 1


def test_a_fact_goes_with_the_only_message_that_tells_it(pipeline: ContextPipeline) -> None:
    pipeline.add_messages([lives_in("Leeds", "m1", 100)], **SCOPE)
    pipeline.end_session(**SCOPE)
    assert pipeline.flush(60)
    assert len(facts(pipeline)) == 1
    assert pipeline.sweep(POLICY).facts >= 1
    assert facts(pipeline) == []


def test_facts_have_days_of_their_own(pipeline: ContextPipeline) -> None:
    pipeline.add_messages([lives_in("Leeds", "m1", 100)], **SCOPE)
    pipeline.end_session(**SCOPE)
    assert pipeline.flush(60)
    pipeline.sweep({"facts": 30})
    assert facts(pipeline) == []
    assert len(pipeline.get_messages(**SCOPE)) == 1


@pytest.mark.parametrize(("keep_pinned", "left"), [(True, 1), (False, 0)])
def test_a_policy_says_whether_pinned_facts_stay(
    pipeline: ContextPipeline, keep_pinned: bool, left: int
) -> None:
    fact = pipeline.knowledge.add_fact("Lives in Leeds", user_id="ada")
    pipeline.knowledge.pin(fact.id, user_id="ada")
    with pipeline_over(pipeline.store, clock=lambda: NOW + timedelta(days=40)) as later:
        later.sweep({"facts": 30, "keep_pinned": keep_pinned})
        assert len(facts(later)) == left


# Pins and rules


@pytest.mark.parametrize(("keep_pinned", "left"), [(True, 1), (False, 0)])
def test_a_policy_says_whether_pinned_messages_stay(
    pipeline: ContextPipeline, keep_pinned: bool, left: int
) -> None:
    pipeline.add_messages(exchanges(OLD, 3, 100), **SCOPE)
    pipeline.pin(question_id(OLD, 1), **SCOPE)
    pipeline.sweep({"messages": 90, "keep_pinned": keep_pinned})
    assert len(pipeline.get_messages(**SCOPE)) == left


@pytest.mark.parametrize(("keep_pinned", "is_left"), [(True, True), (False, False)])
def test_a_policy_says_whether_pinned_messages_stay_in_the_archive(
    pipeline: ContextPipeline, store: BaseStore, keep_pinned: bool, is_left: bool
) -> None:
    pipeline.add_messages(exchanges(OLD, 3, 100), **SCOPE)
    pipeline.pin(question_id(OLD, 1), **SCOPE)
    pipeline.remove_messages(question_id(OLD, 1), on_removal="archive", **SCOPE)
    pipeline.pin(question_id(OLD, 2), **SCOPE)
    pipeline.sweep({"messages": 90, "keep_pinned": keep_pinned})
    assert (with_word(f"{OLD}1 very", store) != []) is is_left


RULE = "Never push to main without asking me first."


@pytest.mark.parametrize(("keep_rules", "left"), [(True, [RULE]), (False, [])])
def test_a_policy_says_whether_rules_in_force_stay(
    pipeline: ContextPipeline, keep_rules: bool, left: list[str]
) -> None:
    at = {"created_at": (NOW - timedelta(days=100)).isoformat()}
    chat = pipeline.conversation("c1", user_id="ada")
    chat.add(HumanMessage(RULE, additional_kwargs=at), *exchanges(OLD, 1, 99))
    chat.add(*exchanges(YOUNG, 1, 5))
    pipeline.sweep({"messages": 90, "keep_rules": keep_rules})
    assert [rule.text for rule in chat.rules()] == left
    assert OLD not in str(chat.messages())


# Snapshots and derived data


def test_old_reports_are_erased(pipeline: ContextPipeline) -> None:
    pipeline.add_messages(exchanges(YOUNG, 1, 5), **SCOPE)
    pipeline.assemble(QUESTION, **SCOPE)
    assert pipeline.flush(60)
    with pipeline_over(pipeline.store, clock=lambda: NOW + timedelta(days=40)) as later:
        assert later.sweep({"snapshots": 30}).snapshots > 0
        assert later.snapshots.list(**SCOPE) == []


def test_derived_data_of_resting_conversations_is_made_again(store: BaseStore) -> None:
    with pipeline_over(store) as pipeline:
        pipeline.add_messages(exchanges(YOUNG, 12, 10), **SCOPE)
        before = pipeline.assemble(QUESTION, **SCOPE)
        assert pipeline.flush(60)
    with pipeline_over(store, clock=lambda: NOW + timedelta(days=40)) as later:
        assert later.sweep({"derived": 30}).derived > 0
        assert later.sweep({"derived": 30}).derived == 0
        after = later.assemble(QUESTION, **SCOPE)
        assert len(after.messages) == len(before.messages)


def rest(store: BaseStore, days: float) -> None:
    """Makes the store say that nobody has written to the conversations for so many days."""
    for found in store.search(("ctxbudget", label("ada"), "lanes")):
        item = store.get(found.namespace, found.key)
        assert item is not None
        item.updated_at -= timedelta(days=days)


@pytest.mark.parametrize("is_written", [False, True], ids=["resting", "written"])
def test_a_sweep_of_messages_does_not_begin_the_days_of_derived_data_anew(
    pipeline: ContextPipeline, store: BaseStore, is_written: bool
) -> None:
    pipeline.add_messages([*exchanges(OLD, 8, 100), *exchanges(YOUNG, 20, 45)], **SCOPE)
    rest(store, days=40)
    assert pipeline.sweep(POLICY).messages == 16
    pipeline.assemble(QUESTION, **SCOPE)
    if is_written:
        pipeline.add_messages(said(YOUNG, 30, 0), **SCOPE)
    assert pipeline.flush(60)
    assert (pipeline.sweep({"derived": 30}).derived > 0) is not is_written


# The setting


def test_settings_name_the_policy(store: BaseStore) -> None:
    with ContextPipeline({**SETTINGS, "retention": POLICY}, store=store) as pipeline:
        pipeline.add_messages(exchanges(OLD, 1, 100), **SCOPE)
        assert pipeline.sweep().messages == 2


def test_without_a_policy_nothing_is_erased(pipeline: ContextPipeline) -> None:
    pipeline.add_messages(exchanges(OLD, 1, 100), **SCOPE)
    assert pipeline.sweep().erased == 0


def test_saved_settings_of_a_user_go_before(store: BaseStore) -> None:
    with ContextPipeline({**SETTINGS, "retention": POLICY}, store=store) as pipeline:
        pipeline.save_settings({"retention": {"messages": 200}}, user_id="ada")
        pipeline.add_messages(exchanges(OLD, 1, 100), **SCOPE)
        assert pipeline.sweep().messages == 0


@pytest.mark.parametrize("days", [0, -1, "90", 40_000])
def test_days_out_of_range_are_refused(days: object) -> None:
    with pytest.raises(InvalidSettingsError, match=r"retention\.messages"):
        RetentionPolicy(messages=days)  # type: ignore[arg-type]


BACKGROUND = {**SETTINGS, "retention": {"messages": 90, "every_hours": 6}}


def test_a_pipeline_sweeps_in_the_background(store: BaseStore) -> None:
    with ContextPipeline(BACKGROUND, store=store) as pipeline:
        pipeline.add_messages(exchanges(OLD, 1, 100), user_id="bo", conversation_id="c1")
        pipeline.assemble("Hello", **SCOPE)
        assert pipeline.flush(60)
        assert pipeline.list_conversations(user_id="bo") == []


@pytest.mark.parametrize(("hours", "left"), [(5, 2), (7, 0)])
def test_a_store_is_swept_once_in_so_many_hours(store: BaseStore, hours: float, left: int) -> None:
    with ContextPipeline(BACKGROUND, store=store) as pipeline:
        pipeline.assemble("Hello", **SCOPE)
        assert pipeline.flush(60)
        pipeline.add_messages(exchanges(OLD, 1, 100), **SCOPE)
    later = NOW + timedelta(hours=hours)
    with ContextPipeline(BACKGROUND, store=store, clock=lambda: later) as pipeline:
        pipeline.get_messages(**SCOPE)
        assert pipeline.flush(60)
        assert len(pipeline.get_messages(**SCOPE)) == left


@pytest.mark.parametrize("value", [{"at": "2999-01-01T00:00:00Z"}, {"unknown": 1}])
def test_a_wrong_time_of_the_last_sweep_does_not_end_sweeps(
    store: BaseStore, value: dict[str, Any]
) -> None:
    store.put(("ctxbudget", "shared", "retention"), "retention", value)
    with ContextPipeline(BACKGROUND, store=store) as pipeline:
        pipeline.add_messages(exchanges(OLD, 1, 100), user_id="bo", conversation_id="c1")
        assert pipeline.flush(60)
        assert pipeline.list_conversations(user_id="bo") == []


def test_hours_out_of_range_are_refused() -> None:
    with pytest.raises(InvalidSettingsError, match=r"retention\.every_hours"):
        RetentionPolicy(every_hours=10**12)


# What must hold of any conversation


def drawn(ages: Sequence[int], kinds: Sequence[str]) -> list[BaseMessage]:
    """Returns messages, each with a word of its own, so many days old."""
    messages: list[BaseMessage] = []
    for number, (days, kind) in enumerate(zip(ages, kinds, strict=True)):
        at = {"created_at": (NOW - timedelta(days=days)).isoformat()}
        word = f"word{number}x{'old' if days > 90 else 'young'}"
        if kind == "human":
            text = f"I like {word}. My sister lives in {word}."
            messages.append(HumanMessage(text, id=f"m{number}", additional_kwargs=at))
        elif kind == "ai":
            messages.append(AIMessage(f"Noted: {word}.", id=f"m{number}", additional_kwargs=at))
        else:
            call = {"name": "look", "args": {"at": word}, "id": f"call{number}"}
            messages.append(AIMessage("", id=f"m{number}", tool_calls=[call], additional_kwargs=at))
            result = ToolMessage(word, tool_call_id=f"call{number}", id=f"r{number}")
            result.additional_kwargs = at
            messages.append(result)
    return messages


def is_old(message: BaseMessage) -> bool:
    at = datetime.fromisoformat(message.additional_kwargs["created_at"])
    return at < NOW - timedelta(days=90)


CONVERSATIONS = st.lists(
    st.tuples(st.sampled_from([100, 95, 50, 1]), st.sampled_from(["human", "ai", "tool"])),
    min_size=1,
    max_size=24,
)


@pytest.mark.slow
@given(CONVERSATIONS, CONVERSATIONS)
@settings(max_examples=8, deadline=None)
def test_a_swept_conversation_is_as_if_old_messages_were_removed_by_hand(
    one: list[tuple[int, str]], other: list[tuple[int, str]]
) -> None:
    swept_store, store = InMemoryStore(), InMemoryStore()
    with pipeline_over(swept_store) as swept, pipeline_over(store) as by_hand:
        for name, conversation in (("c1", one), ("c2", other)):
            messages = drawn(*zip(*conversation, strict=True))
            old = [str(message.id) for message in messages if is_old(message)]
            for pipeline in (swept, by_hand):
                chat = pipeline.conversation(name, user_id="ada")
                chat.add(*messages)
                chat.assemble(QUESTION)
                pipeline.end_session(user_id="ada", conversation_id=name)
                assert pipeline.flush(60)
            if old:
                by_hand.remove_messages(
                    old, on_removal="forget", user_id="ada", conversation_id=name
                )
        swept.sweep(POLICY)

        for pipeline in (swept, by_hand):
            assert pipeline.flush(60)
        assert with_word("xold", swept_store) == []
        for name in ("c1", "c2"):
            chats = [each.conversation(name, user_id="ada") for each in (swept, by_hand)]
            assert chats[0].messages() == chats[1].messages()
            prompts = [chat.assemble(QUESTION) for chat in chats]
            assert [prompt.report.failures for prompt in prompts] == [(), ()]
            assert prompts[0].messages == prompts[1].messages
        assert facts(swept) == facts(by_hand)


@pytest.mark.slow
@given(
    CONVERSATIONS,
    CONVERSATIONS,
    st.fixed_dictionaries(
        {},
        optional={
            "messages": st.sampled_from([100, 120]),
            "facts": st.sampled_from([60, 120]),
            "snapshots": st.sampled_from([30, 60]),
            "derived": st.sampled_from([30, 60]),
            "keep_pinned": st.booleans(),
            "keep_rules": st.booleans(),
        },
    ),
)
@settings(max_examples=40, deadline=None)
def test_a_dry_run_tells_what_a_sweep_erases_of_any_conversation(
    one: list[tuple[int, str]], other: list[tuple[int, str]], policy: dict[str, Any]
) -> None:
    store = InMemoryStore()
    with pipeline_over(store) as pipeline:
        for name, conversation in (("c1", one), ("c2", other)):
            chat = pipeline.conversation(name, user_id="ada")
            ids = chat.add(*drawn(*zip(*conversation, strict=True)))
            chat.assemble(QUESTION)
            chat.pin(ids[0])
            pipeline.end_session(user_id="ada", conversation_id=name)
            assert pipeline.flush(60)
    with pipeline_over(store, clock=lambda: NOW + timedelta(days=40)) as later:
        for _ in range(2):
            foretold = later.sweep(policy, dry_run=True)
            assert later.sweep(policy) == foretold
            assert later.flush(60)


# At the same time


def test_a_message_that_comes_while_a_conversation_is_deleted_stays() -> None:
    """Another process appends right before the heads of the lanes are deleted."""
    store = Watched()
    with pipeline_over(store) as sweeping, pipeline_over(store) as other:
        sweeping.add_messages(exchanges(OLD, 2, 100), **SCOPE)
        other.add_messages(said(OLD, 7, 100), **SCOPE)
        lanes = ("ctxbudget", label("ada"), "lanes", label("c1"))
        appended: list[str] = []

        def append_once(operation: Op) -> None:
            is_deletion = isinstance(operation, PutOp) and operation.value is None
            if is_deletion and operation.namespace == lanes and not appended:
                appended.append("now")
                other.add_messages(said(YOUNG, 1, 1), **SCOPE)

        store.tell = append_once
        sweeping.sweep(POLICY)

        assert appended
        for pipeline in (sweeping, other, pipeline_over(store)):
            assert pipeline.get_messages(**SCOPE) == said(YOUNG, 1, 1)


def test_an_old_message_that_comes_during_a_sweep_goes_with_the_next() -> None:
    """Another process appends it right before old records are deleted."""
    store = Watched()
    with pipeline_over(store) as sweeping, pipeline_over(store) as other:
        sweeping.add_messages([*exchanges(OLD, 2, 100), *exchanges(YOUNG, 2, 10)], **SCOPE)
        other.add_messages(said(YOUNG, 7, 5), **SCOPE)
        messages = ("ctxbudget", label("ada"), "messages", label("c1"))
        appended: list[str] = []

        def append_once(operation: Op) -> None:
            is_deletion = isinstance(operation, PutOp) and operation.value is None
            if is_deletion and operation.namespace == messages and not appended:
                appended.append("now")
                other.add_messages(said(OLD, 7, 100), **SCOPE)

        store.tell = append_once
        first = sweeping.sweep(POLICY)
        second = sweeping.sweep(POLICY)

        assert appended
        assert (first.messages, second.messages) == (4, 2)
        assert OLD not in str(other.get_messages(**SCOPE))


def test_a_deleted_conversation_begins_anew(pipeline: ContextPipeline) -> None:
    pipeline.add_messages(exchanges(OLD, 2, 100), **SCOPE)
    pipeline.sweep(POLICY)
    pipeline.add_messages(said(YOUNG, 1, 1), **SCOPE)
    assert pipeline.get_messages(**SCOPE) == said(YOUNG, 1, 1)


@pytest.mark.parametrize("is_joined", [True, False], ids=["joined", "head"])
def test_damaged_lanes_keep_their_own_conversation_alone(
    pipeline: ContextPipeline, store: BaseStore, is_joined: bool
) -> None:
    for user, name in (("ada", "c1"), ("ada", "c2"), ("bo", "c1")):
        pipeline.add_messages(exchanges(OLD, 1, 100), user_id=user, conversation_id=name)
    assert pipeline.flush(60)
    lanes = ("ctxbudget", label("ada"), "lanes", label("c1"))
    [damaged] = [item for item in store.search(lanes) if (item.key == "joined") is is_joined]
    store.put(lanes, damaged.key, {"unknown": 1})

    result = pipeline.sweep(POLICY)

    assert result.messages == 4
    [failure] = result.failures
    assert failure.startswith("'c1' of 'ada' not swept: ")


def test_a_user_whose_saved_settings_are_damaged_loses_nothing(store: BaseStore) -> None:
    with ContextPipeline({**SETTINGS, "retention": POLICY}, store=store) as pipeline:
        pipeline.save_settings({"retention": {"messages": 200}}, user_id="ada")
        pipeline.add_messages(exchanges(OLD, 1, 100), **SCOPE)
        [saved] = store.search(("ctxbudget", label("ada"), "settings"))
        store.put(saved.namespace, saved.key, {"unknown": 1})

        result = pipeline.sweep()

        assert result.messages == 0
        assert "The settings saved for 'ada' cannot be used" in result.failures[0]


def test_one_damaged_conversation_does_not_keep_others(
    pipeline: ContextPipeline, store: BaseStore
) -> None:
    for name in ("c1", "c2"):
        pipeline.add_messages(exchanges(OLD, 1, 100), user_id="ada", conversation_id=name)
    namespace = ("ctxbudget", label("ada"), "messages", label("c1"))
    [item, *_] = store.search(namespace)
    store.put(namespace, item.key, {**item.value, "text": "{not json"})

    result = pipeline.sweep(POLICY)

    assert result.messages == 2
    assert "'c1' of 'ada' not swept" in result.failures[0]
