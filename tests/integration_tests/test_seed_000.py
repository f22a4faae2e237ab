"""What seed 000 says of schema, settings, layers, assembler and chart is what happens."""

from datetime import timedelta
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import (
    AssembledContext,
    ContextPipeline,
    ContextReport,
    ContextSettings,
    LocalEmbeddings,
)
from langchain_ctxbudget.budget import ElasticAllocation, LayerSpec, Situation
from langchain_ctxbudget.errors import InputError
from langchain_ctxbudget.history import ConversationCompaction
from langchain_ctxbudget.history.cutting import COMPACTION
from langchain_ctxbudget.history.extractive import OLDER_SHARE, PARTS
from langchain_ctxbudget.history.tree import TREE
from langchain_ctxbudget.knowledge import (
    ClientPresence,
    ContextBundle,
    EntityProfile,
    TopicProfile,
)
from langchain_ctxbudget.retrieval.filling import MEMORY_SHARE
from tests.integration_tests.seeds import ADA, C1, NOW, new_pipeline, talk

pytestmark = pytest.mark.slow

ABOUT_SARAH = "What did Sarah say about Prisma ORM?"
TWO_DAYS_AGO = NOW - timedelta(days=2)


# Settings


@pytest.mark.parametrize(
    ("setting", "default"),
    [
        ("max_context_tokens", 12_000),
        ("prioritize_history", True),  # prioritizeConversationHistory
        ("depth", "standard"),  # knowledgeDepth
        ("include_entities", True),  # includeEntityContext
        ("span_messages", 20),  # chunks of 20 messages
    ],
)
def test_settings_have_the_defaults_of_the_seed(setting: str, default: object) -> None:
    assert getattr(ContextSettings(), setting) == default


# TopicProfile


def add_topic(**fields: Any) -> TopicProfile:
    return new_pipeline().knowledge.add_topic("Prisma ORM", **ADA, **fields)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("slug", "prisma-orm"),
        ("label", "Prisma ORM"),
        ("total_conversations", 0),
        ("total_messages", 0),
        ("engagement_streak", 0),
        ("proficiency_level", "unknown"),
        ("importance_score", 0.5),
    ],
)
def test_a_new_topic_has_a_slug_and_defaults(field: str, value: object) -> None:
    assert getattr(add_topic(), field) == value


@pytest.mark.parametrize(
    ("field", "value", "kept"),
    [
        ("aliases", ["prisma.io"], ("prisma.io",)),
        ("parent_slug", "databases", "databases"),
        ("domain", "engineering", "engineering"),
        ("proficiency_level", "expert", "expert"),
    ],
)
def test_a_topic_keeps_what_it_is_added_with(field: str, value: object, kept: object) -> None:
    topic = add_topic(**{field: value})
    assert getattr(topic, field) == kept


def test_a_user_has_one_topic_of_a_slug() -> None:
    pipeline = new_pipeline()
    pipeline.knowledge.add_topic("Prisma ORM", **ADA)
    with pytest.raises(InputError) as caught:
        pipeline.knowledge.add_topic("Prisma ORM", **ADA)
    assert caught.type is InputError


@pytest.fixture(scope="module")
def engaged() -> ContextPipeline:
    """A topic and an entity came up on three days at six in the evening.

    In a conversation each.
    """
    pipeline = ContextPipeline(clock=lambda: NOW)
    pipeline.knowledge.add_topic("Prisma ORM", **ADA, aliases=["prisma"])
    pipeline.knowledge.add_entity("Sarah", **ADA)
    for day in range(3):
        conversation: Any = {"user_id": "ada", "conversation_id": f"c{day}"}
        time = {"created_at": (TWO_DAYS_AGO + timedelta(days=day)).isoformat()}
        messages = [
            HumanMessage("Does Sarah use Prisma?", additional_kwargs=time),
            AIMessage("Yes, Sarah does."),
        ]
        pipeline.add_messages(messages, **conversation)
        pipeline.end_session(**conversation)
    pipeline.flush()
    return pipeline


@pytest.fixture(scope="module")
def engaged_topic(engaged: ContextPipeline) -> TopicProfile:
    return engaged.knowledge.list_topics(**ADA)[0]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("total_conversations", 3),
        ("total_acus", 3),
        ("total_messages", 3),
        ("avg_session_depth", 1.0),
        ("engagement_streak", 3),
        ("peak_hour", 18),
        ("first_engaged_at", TWO_DAYS_AGO),
        ("last_engaged_at", NOW),
        ("embedding_model", "wordllama-l2-supercat-256-sif"),
        ("created_at", NOW),
    ],
)
def test_a_topic_that_comes_up_is_counted(
    engaged_topic: TopicProfile, field: str, value: object
) -> None:
    assert getattr(engaged_topic, field) == value


def test_a_topic_that_comes_up_has_spent_tokens(engaged_topic: TopicProfile) -> None:
    assert engaged_topic.total_tokens_spent > 0


def test_a_topic_that_comes_up_has_an_embedding(engaged_topic: TopicProfile) -> None:
    assert len(engaged_topic.embedding) == 256


# EntityProfile


@pytest.fixture(scope="module")
def engaged_entity(engaged: ContextPipeline) -> EntityProfile:
    return engaged.knowledge.list_entities(**ADA)[0]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("total_messages", 6),
        ("total_conversations", 3),
        ("first_engaged_at", TWO_DAYS_AGO),
        ("last_engaged_at", NOW),
    ],
)
def test_an_entity_that_comes_up_is_counted(
    engaged_entity: EntityProfile, field: str, value: object
) -> None:
    assert getattr(engaged_entity, field) == value


@pytest.fixture
def knowing() -> ContextPipeline:
    """A pipeline that knows a topic with its text, an entity and two facts of a user."""
    pipeline = new_pipeline()
    pipeline.knowledge.add_topic(
        "Prisma ORM", **ADA, aliases=["prisma"], compiled_context="Version 5, with Postgres."
    )
    pipeline.knowledge.add_entity(
        "Sarah", **ADA, type="person", relationship="cofounder", aliases=["@sarah"]
    )
    pipeline.knowledge.add_fact("Lives in Lisbon", **ADA, category="identity")
    pipeline.knowledge.add_fact("Prefers short answers", **ADA)
    return pipeline


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", "Sarah"),
        ("type", "person"),
        ("relationship", "cofounder"),
        ("aliases", ("@sarah",)),
    ],
)
def test_an_entity_keeps_what_it_is_added_with(
    knowing: ContextPipeline, field: str, value: object
) -> None:
    [entity] = knowing.knowledge.list_entities(**ADA)
    assert getattr(entity, field) == value


# ContextBundle


def bundle_of(pipeline: ContextPipeline, key: str) -> ContextBundle:
    bundles = {bundle.id: bundle for bundle in pipeline.knowledge.list_bundles(**ADA)}
    return bundles[key]


def test_identity_preferences_topics_and_entities_have_texts(knowing: ContextPipeline) -> None:
    types = {bundle.bundle_type for bundle in knowing.knowledge.list_bundles(**ADA)}
    assert types == {"identity_core", "global_prefs", "topic", "entity"}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("token_count", 17),
        ("priority", 0.5),
        ("version", 1),
        ("compiled_at", NOW),
        ("last_used_at", None),
    ],
)
def test_a_new_text_tells_its_size_and_times(
    knowing: ContextPipeline, field: str, value: object
) -> None:
    assert getattr(bundle_of(knowing, "topic/prisma-orm"), field) == value


def test_a_text_that_nothing_changed_is_not_built_again(knowing: ContextPipeline) -> None:
    knowing.knowledge.list_bundles(**ADA)
    knowing.knowledge.pin("topic/prisma-orm", **ADA)
    assert bundle_of(knowing, "topic/prisma-orm").version == 1


def test_an_edited_text_is_a_new_version(knowing: ContextPipeline) -> None:
    knowing.knowledge.list_bundles(**ADA)
    knowing.knowledge.pin("topic/prisma-orm", **ADA)
    knowing.knowledge.edit("topic/prisma-orm", **ADA, compiled_context="Version 6.")
    assert bundle_of(knowing, "topic/prisma-orm").version == 2


def test_a_text_counts_the_prompts_that_show_it(knowing: ContextPipeline) -> None:
    knowing.assemble(ABOUT_SARAH, **C1)
    knowing.assemble(ABOUT_SARAH, **C1)
    hits = {bundle.id: bundle.hit_count for bundle in knowing.knowledge.list_bundles(**ADA)}
    assert hits == {
        "entity/person/sarah": 2,
        "global_prefs": 2,
        "identity_core": 2,
        "topic/prisma-orm": 2,
    }


@pytest.fixture
def persona() -> ContextPipeline:
    """A pipeline with a persona's settings."""
    pipeline = new_pipeline()
    settings: Any = {"personality": "helpful", "preferences": ["Prices in euros."]}
    pipeline.save_settings(settings, **ADA, persona_id="p1")
    return pipeline


def test_the_text_of_a_persona_is_shown(persona: ContextPipeline) -> None:
    system = persona.assemble("Hi", **C1, persona_id="p1").messages[0].text
    lines = bundle_of(persona, "persona/p1").compiled_prompt.splitlines()
    assert lines != []
    assert [line for line in lines if f"- {line}\n" not in system] == []


@pytest.mark.parametrize(
    ("field", "value"), [("hit_count", 1), ("miss_count", 1), ("token_count", 24)]
)
def test_settings_of_a_call_miss_the_text_of_a_persona(
    persona: ContextPipeline, field: str, value: int
) -> None:
    yen: Any = {"preferences": ["Prices in yen."]}
    persona.assemble("Hi", **C1, persona_id="p1")
    persona.assemble("Hi", **C1, persona_id="p1", settings=yen)
    assert getattr(bundle_of(persona, "persona/p1"), field) == value


# ClientPresence


@pytest.mark.parametrize(
    ("view", "topics"),
    [
        ({"path": "/docs/prisma-orm"}, ("topic/prisma-orm",)),
        ({"active_notebook_id": "prisma"}, ("topic/prisma-orm",)),
        ({"path": "/home"}, ()),
    ],
    ids=["navigation", "notebook", "elsewhere"],
)
def test_what_a_device_shows_predicts_topics(
    knowing: ContextPipeline, view: Any, topics: tuple[str, ...]
) -> None:
    device = knowing.knowledge.heartbeat(**ADA, device_id="phone", **view)
    assert device.predicted_topics == topics


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("predicted", ("Prisma ORM",)),
        ("topics", ("Prisma ORM",)),
        ("entities", ("Sarah",)),
    ],
)
def test_a_report_tells_what_was_predicted_and_what_came_up(
    knowing: ContextPipeline, field: str, value: tuple[str, ...]
) -> None:
    knowing.knowledge.heartbeat(
        **ADA, device_id="phone", path="/docs/prisma-orm", active_persona_id="p1"
    )
    report = knowing.assemble(ABOUT_SARAH, **C1, device_id="phone").report
    assert getattr(report, field) == value


def test_an_idle_device_has_been_idle_since_its_heartbeat(knowing: ContextPipeline) -> None:
    device = knowing.knowledge.heartbeat(**ADA, device_id="phone", idle=True)
    assert device.idle_since == NOW


class CountingEmbeddings(LocalEmbeddings):
    """Embeddings that count the texts of documents."""

    texts = 0

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        self.texts += len(texts)
        return super().embed_documents(texts)


class NewProcess:
    """A pipeline of a new process, on a store with a long conversation."""

    def __init__(self) -> None:
        store = InMemoryStore()
        ContextPipeline({"learn": False}, store=store).add_messages(talk(200), **C1)
        self.embeddings = CountingEmbeddings()
        self.pipeline = ContextPipeline(
            {"learn": False, "max_context_tokens": 2_000}, store=store, embeddings=self.embeddings
        )

    def texts_of_a_prompt(self) -> int:
        """How many texts are embedded for a prompt."""
        self.embeddings.texts = 0
        self.pipeline.assemble("In which year did we plant 30 pear trees?", **C1)
        return self.embeddings.texts


def test_the_conversation_in_front_is_read_ahead() -> None:
    process = NewProcess()
    process.pipeline.knowledge.heartbeat(**ADA, device_id="phone", active_conversation_id="c1")
    process.pipeline.flush()
    assert process.texts_of_a_prompt() == 1


def test_a_conversation_that_nobody_has_open_is_not_read_ahead() -> None:
    assert NewProcess().texts_of_a_prompt() > 390


@pytest.fixture(scope="module")
def device() -> ClientPresence:
    """A device after two heartbeats, a minute apart."""
    clock = [NOW]
    pipeline = new_pipeline(clock)
    for path in ("/a", "/b"):
        pipeline.knowledge.heartbeat(
            **ADA,
            device_id="phone",
            active_conversation_id="c1",
            visible_conversation_ids=["c1", "c2"],
            active_notebook_id="n1",
            active_persona_id="p1",
            path=path,
            local_time=NOW,
        )
        clock.append(clock[-1] + timedelta(minutes=1))
    [device] = pipeline.knowledge.list_devices(**ADA)
    return device


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("device_id", "phone"),
        ("active_conversation_id", "c1"),
        ("visible_conversation_ids", ("c1", "c2")),
        ("active_notebook_id", "n1"),
        ("active_persona_id", "p1"),
        ("last_navigation_path", "/b"),
        ("local_time", NOW),
        ("session_started_at", NOW),
        ("last_heartbeat_at", NOW + timedelta(minutes=1)),
        ("is_online", True),
        ("idle_since", None),
    ],
)
def test_everything_that_a_device_tells_is_kept(
    device: ClientPresence, field: str, value: object
) -> None:
    assert getattr(device, field) == value


def test_the_paths_of_a_device_are_kept_in_their_order(device: ClientPresence) -> None:
    paths = [path for path, _ in device.navigation_history]
    assert paths == ["/a", "/b"]


# ConversationCompaction


@pytest.fixture(scope="module")
def long_talk() -> ContextPipeline:
    pipeline = new_pipeline(max_context_tokens=2_000)
    pipeline.add_messages(talk(100), **C1)
    return pipeline


@pytest.fixture(scope="module")
def report_of_long_talk(long_talk: ContextPipeline) -> ContextReport:
    return long_talk.assemble("And now?", **C1).report


@pytest.fixture(scope="module")
def compaction(
    long_talk: ContextPipeline, report_of_long_talk: ContextReport
) -> ConversationCompaction:
    return long_talk.get_compactions(**C1)[0]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("from_message_index", 0),
        ("to_message_index", 16),
        ("original_token_count", 476),
        ("compacted_token_count", 135),
        ("compression_ratio", 3.53),
        ("compaction_level", 1),
        ("key_decisions", ()),
        ("open_questions", ()),
        ("code_artifacts", ()),
    ],
)
def test_a_compaction_tells_its_range_and_sizes(
    compaction: ConversationCompaction, field: str, value: object
) -> None:
    assert getattr(compaction, field) == value


def test_a_compaction_keeps_names_of_files() -> None:
    pipeline = new_pipeline(max_context_tokens=2_000)
    messages = talk(100)
    messages[2] = HumanMessage("The plan of the 40 rootstocks is in `orchard/plan.md`.")
    pipeline.add_messages(messages, **C1)
    pipeline.assemble("And now?", **C1)

    assert pipeline.get_compactions(**C1)[0].code_artifacts == ("orchard/plan.md",)


@pytest.mark.parametrize(
    ("exchanges", "strategy"),
    [(5, "full"), (60, "windowed"), (150, "compacted"), (400, "multi_level")],
)
def test_the_form_of_a_history_follows_its_compression(exchanges: int, strategy: str) -> None:
    pipeline = new_pipeline(
        max_context_tokens=2_000, allocation={"strategy": "elastic", "profile": "seed"}
    )
    pipeline.add_messages(talk(exchanges), **C1)
    assert pipeline.assemble("And now?", **C1).report.history_strategy == strategy


def test_a_history_is_windowed_up_to_a_ratio_of_2_5() -> None:
    assert COMPACTION.windowed_ratio == 2.5


def test_a_history_is_compacted_up_to_a_ratio_of_8() -> None:
    assert COMPACTION.compacted_ratio == 8.0


def test_older_messages_have_40_of_75_percent() -> None:
    assert round(OLDER_SHARE * 75) == 40


@pytest.mark.parametrize(
    ("strategy", "parts"),
    [
        ("compacted", (10, 25)),
        ("multi_level", (5, 10, 15)),  # of levels 3, 2 and 1
        ("windowed", (1,)),
    ],
)
def test_each_form_of_a_history_has_its_zones(strategy: str, parts: tuple[int, ...]) -> None:
    assert PARTS[strategy] == parts


def test_five_chunks_make_one_of_the_next_level() -> None:
    assert TREE.fan_out == 5


# Layers


def specs_of(**sizes: Any) -> dict[str, LayerSpec]:
    """The layers of the profile `seed`, for a long conversation with a topic and an entity."""
    usual: dict[str, Any] = {
        "total_tokens": 50_000,
        "overhead_tokens": 0,
        "identity_tokens": 0,
        "preferences_tokens": 0,
        "message_tokens": 0,
        "message_count": 300,
        "history_tokens": 120_000,
        "topic_count": 1,
        "topic_tokens": 9_000,
        "entity_count": 1,
        "entity_tokens": 900,
    }
    situation = Situation(**{**usual, **sizes})
    allocation = ElasticAllocation(profile="seed").allocate(situation)
    return {str(spec.layer): spec for spec in allocation.specs}


def test_six_layers_share_the_budget() -> None:
    assert sorted(specs_of()) == ["L1", "L2", "L3", "L4", "L5", "L6"]


@pytest.mark.parametrize(
    ("layer", "floor", "priority", "elasticity"),
    [
        ("L1", 0, 95, 0.1),  # what there is
        ("L2", 300, 70, 0.6),
        ("L3", 150, 65, 0.7),
        ("L4", 200, 88, 0.3),
        ("L5", 200, 75, 0.5),
        ("L6", 500, 90, 0.4),
    ],
)
def test_a_layer_has_its_floor_priority_and_elasticity(
    layer: str, floor: int, priority: int, elasticity: float
) -> None:
    spec = specs_of()[layer]
    assert spec.min_tokens == floor
    assert spec.priority == priority
    assert spec.elasticity == elasticity


@pytest.mark.parametrize(
    ("sizes", "layer", "priority"),
    [
        ({"topic_count": 2}, "L2", 85),
        ({"depth": "deep"}, "L2", 85),
        ({"message_count": 20}, "L6", 80),
    ],
    ids=["two topics", "in depth", "a short dialogue"],
)
def test_the_priority_of_a_layer_follows_the_situation(
    sizes: dict[str, Any], layer: str, priority: int
) -> None:
    assert specs_of(**sizes)[layer].priority == priority


def test_without_a_conversation_there_is_no_arc() -> None:
    assert "L4" not in specs_of(message_count=0, history_tokens=0)


def test_without_a_conversation_history_has_no_floor() -> None:
    assert specs_of(message_count=0, history_tokens=0)["L6"].min_tokens == 0


def test_memories_have_40_percent_of_what_is_retrieved() -> None:
    """And ACUs 60 %."""
    assert MEMORY_SHARE == 0.4


# The assembler and the chart


def test_each_of_200_messages_is_covered_once(report_of_long_talk: ContextReport) -> None:
    assert sum(report_of_long_talk.coverage_counts().values()) == 200


def test_a_report_tells_the_time_that_it_took(report_of_long_talk: ContextReport) -> None:
    assert sum(report_of_long_talk.timings_ms.values()) > 0


@pytest.fixture
def context(knowing: ContextPipeline) -> AssembledContext:
    return knowing.assemble(ABOUT_SARAH, **C1)


def test_the_system_prompt_comes_first_and_the_message_last(context: AssembledContext) -> None:
    types = [message.type for message in context.messages]
    assert types == ["system", "human"]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("topics", ("Prisma ORM",)),
        ("entities", ("Sarah",)),
        ("history_strategy", "empty"),
        ("allocation_strategy", "elastic"),
        ("cache_hits", {"L1": 2, "L2": 1, "L3": 1}),
        ("cache_misses", {"L1": 0, "L2": 0, "L3": 0}),
    ],
)
def test_a_report_tells_topics_entities_strategies_and_hits(
    context: AssembledContext, field: str, value: object
) -> None:
    assert getattr(context.report, field) == value


@pytest.mark.parametrize(
    "part", ["System prompt", "This turn", "Prisma ORM", "2 of 2 for Rules and preferences"]
)
def test_the_text_shows_layers_topics_and_hits(context: AssembledContext, part: str) -> None:
    assert part in context.report.to_text()
