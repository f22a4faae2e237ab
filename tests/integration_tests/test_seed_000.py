"""What seed 000 says of schema, settings, layers, assembler and chart is what happens."""

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import ContextPipeline, ContextSettings, LocalEmbeddings
from langchain_ctxbudget.budget import ElasticAllocation, Situation
from langchain_ctxbudget.history.cutting import COMPACTION
from langchain_ctxbudget.history.extractive import OLDER_SHARE, PARTS, importance
from langchain_ctxbudget.history.tree import TREE
from langchain_ctxbudget.retrieval.filling import MEMORY_SHARE
from tests.integration_tests.seeds import ADA, C1, NOW, Row, pipeline, refused, talk


def fields(item: object, *names: str) -> tuple[Any, ...]:
    return tuple(getattr(item, name) for name in names)


def topic(**given: Any) -> Any:
    return pipeline().knowledge.add_topic("Prisma ORM", **ADA, **given)


def compiled() -> ContextPipeline:
    it = pipeline()
    it.knowledge.add_topic(
        "Prisma ORM", **ADA, aliases=["prisma"], compiled_context="Version 5, with Postgres."
    )
    it.knowledge.add_entity(
        "Sarah", **ADA, type="person", relationship="cofounder", aliases=["@sarah"]
    )
    it.knowledge.add_fact("Lives in Lisbon", **ADA, category="identity")
    it.knowledge.add_fact("Prefers short answers", **ADA)
    return it


ABOUT = "What did Sarah say about Prisma ORM?"


def bundle(it: ContextPipeline, name: str) -> Any:
    return next(one for one in it.knowledge.list_bundles(**ADA) if one.id == name)


def edited() -> list[int]:
    """Versions of a text: compiled, nothing changed, changed."""
    it, versions = compiled(), list[int]()
    for change in ({}, {"pinned": True}, {"text": True}):
        if change.get("pinned"):
            it.knowledge.pin("topic/prisma-orm", **ADA)
        if change.get("text"):
            it.knowledge.edit("topic/prisma-orm", **ADA, compiled_context="Version 6.")
        versions.append(bundle(it, "topic/prisma-orm").version)
    return versions


def used() -> dict[str, int]:
    it = compiled()
    for _ in range(2):
        it.assemble(ABOUT, **C1)
    return {one.id: one.hit_count for one in it.knowledge.list_bundles(**ADA)}


def as_persona() -> tuple[int, int, int]:
    """Hits, misses and tokens of a persona's text: one prompt shows it, one with other settings does not."""
    it = pipeline()
    it.save_settings(
        {"personality": "helpful", "preferences": ["Prices in euros."]}, **ADA, persona_id="p1"
    )
    text = it.assemble("Hi", **C1, persona_id="p1").messages[0].text
    it.assemble("Hi", **C1, persona_id="p1", settings={"preferences": ["Prices in yen."]})
    made = bundle(it, "persona/p1")
    assert all(f"- {line}\n" in text for line in made.compiled_prompt.splitlines())
    return made.hit_count, made.miss_count, made.token_count


def present(**opened: Any) -> Any:
    it = compiled()
    return it, it.knowledge.heartbeat(**ADA, device_id="phone", **opened)


def predicted() -> Any:
    it, _ = present(path="/docs/prisma-orm", active_persona_id="p1")
    return it.assemble(ABOUT, **C1, device_id="phone").report


def came_up() -> Any:
    """A topic and an entity that came up on three days at six in the evening, in a conversation each."""
    it = ContextPipeline(clock=lambda: NOW)
    it.knowledge.add_topic("Prisma ORM", **ADA, aliases=["prisma"])
    it.knowledge.add_entity("Sarah", **ADA)
    for day in range(3):
        at = {"created_at": (NOW - timedelta(days=2 - day)).isoformat()}
        said = [
            HumanMessage("Does Sarah use Prisma?", additional_kwargs=at),
            AIMessage("Yes, Sarah does."),
        ]
        it.add_messages(said, user_id="ada", conversation_id=f"c{day}")
        it.end_session(user_id="ada", conversation_id=f"c{day}")
    it.flush()
    return it.knowledge.list_topics(**ADA)[0], it.knowledge.list_entities(**ADA)[0]


def compaction() -> Any:
    it = pipeline(max_context_tokens=2_000)
    it.add_messages(talk(100), **C1)
    it.assemble("And now?", **C1)
    return it.get_compactions(**C1)[0]


def embedded(*, ahead: bool) -> int:
    """How many texts a new process embeds for a prompt in a conversation that a device shows since a moment."""

    class Counting(LocalEmbeddings):
        texts = 0

        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            self.texts += len(texts)
            return super().embed_documents(texts)

    store, counting = InMemoryStore(), Counting()
    ContextPipeline({"learn": False}, store=store).add_messages(talk(200), **C1)
    it = ContextPipeline(
        {"learn": False, "max_context_tokens": 2_000}, store=store, embeddings=counting
    )
    if ahead:
        it.knowledge.heartbeat(**ADA, device_id="phone", active_conversation_id="c1")
        it.flush()
        counting.texts = 0
    it.assemble("In which year did we plant 30 pear trees?", **C1)
    return counting.texts


def layers(**sizes: Any) -> dict[str, tuple[Any, ...]]:
    """Floor, priority and elasticity of the layers of the profile `seed`."""
    none = dict.fromkeys(
        ("overhead_tokens", "identity_tokens", "preferences_tokens", "message_tokens"), 0
    )
    talk = {
        "total_tokens": 50_000,
        "history_tokens": 120_000,
        "topic_tokens": 9_000,
        "entity_tokens": 900,
    }
    situation = Situation(
        **{**none, "message_count": 300, "topic_count": 1, "entity_count": 1, **talk, **sizes}
    )
    specs = ElasticAllocation(profile="seed").allocate(situation).specs
    return {str(one.layer): (one.min_tokens, one.priority, one.elasticity) for one in specs}


def covered() -> tuple[int, bool]:
    it = pipeline(max_context_tokens=2_000)
    it.add_messages(talk(100), **C1)
    report = it.assemble("And now?", **C1).report
    return sum(report.coverage_counts().values()), sum(report.timings_ms.values()) > 0


def layers_of_none() -> Any:
    """The arc, and the floor of the history, where nothing was said yet."""
    found = layers(message_count=0, history_tokens=0)
    return SimpleNamespace(arc=found.get("L4"), history=found["L6"][0])


def decided() -> Any:
    """The first compaction of a talk that decides something, leaves something open and names a file."""
    it = pipeline(max_context_tokens=2_000)
    said = talk(100)
    said[2] = HumanMessage(
        "We decided on quince for the rootstocks; the plan is in `orchard/plan.md`."
    )
    said[4] = HumanMessage("[OPEN] Who waters the saplings in August?")
    it.add_messages(said, **C1)
    it.assemble("And now?", **C1)
    return it.get_compactions(**C1)[0]


def beats() -> Any:
    """A device after two heartbeats, a minute apart."""
    clock = [NOW]
    it = pipeline(clock)
    for path in ("/a", "/b"):
        it.knowledge.heartbeat(
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
    [device] = it.knowledge.list_devices(**ADA)
    return device


def twice() -> object:
    it = pipeline()
    return [it.knowledge.add_topic("Prisma ORM", **ADA) for _ in range(2)]


def strategies() -> list[str]:
    """The forms of ever longer histories in one budget."""
    found: list[str] = []
    for number in (5, 60, 150, 400):
        it = pipeline(
            max_context_tokens=2_000, allocation={"strategy": "elastic", "profile": "seed"}
        )
        it.add_messages(talk(number), **C1)
        found.append(it.assemble("And now?", **C1).report.history_strategy)
    return found


ROWS = [
    Row("settings: default 12,000 tokens", lambda: ContextSettings().max_context_tokens, 12_000),
    Row(
        "settings: prioritizeConversationHistory true",
        lambda: ContextSettings().prioritize_history,
        True,
    ),
    Row("settings: knowledgeDepth standard", lambda: ContextSettings().depth, "standard"),
    Row("settings: includeEntityContext true", lambda: ContextSettings().include_entities, True),
    Row(
        "TopicProfile: a label has a slug",
        lambda: fields(topic(aliases=["prisma.io"]), "slug", "label", "aliases"),
        ("prisma-orm", "Prisma ORM", ("prisma.io",)),
    ),
    Row(
        "TopicProfile: defaults",
        lambda: fields(
            topic(),
            "total_conversations",
            "total_messages",
            "engagement_streak",
            "proficiency_level",
        ),
        (0, 0, 0, "unknown"),
    ),
    Row(
        "TopicProfile: parent, domain and level",
        lambda: fields(
            topic(parent_slug="databases", domain="engineering", proficiency_level="expert"),
            "parent_slug",
            "domain",
            "proficiency_level",
        ),
        ("databases", "engineering", "expert"),
    ),
    Row(
        "TopicProfile: conversations, ACUs, messages, depth, streak, peak hour, as computed",
        lambda: fields(
            came_up()[0],
            *(
                "total_conversations",
                "total_acus",
                "total_messages",
                "avg_session_depth",
                "engagement_streak",
                "peak_hour",
            ),
        ),
        (3, 3, 3, 1.0, 3, 18),
    ),
    Row(
        "TopicProfile: tokens spent, an embedding",
        lambda: (came_up()[0].total_tokens_spent > 0, len(came_up()[0].embedding)),
        (True, 256),
    ),
    Row(
        "EntityProfile: mentions, conversations, first and last mentioned",
        lambda: fields(
            came_up()[1],
            "total_messages",
            "total_conversations",
            "first_engaged_at",
            "last_engaged_at",
        ),
        (6, 3, NOW - timedelta(days=2), NOW),
    ),
    Row(
        "ConversationCompaction: range, tokens, ratio, level",
        lambda: fields(
            compaction(),
            *(
                "from_message_index",
                "to_message_index",
                "original_token_count",
                "compacted_token_count",
            ),
            *(
                "compression_ratio",
                "compaction_level",
                "key_decisions",
                "open_questions",
                "code_artifacts",
            ),
        ),
        (0, 16, 476, 351, 1.36, 1, (), (), ()),
    ),
    Row(
        "EntityProfile: type, relationship, aliases",
        lambda: fields(
            compiled().knowledge.list_entities(**ADA)[0], "name", "type", "relationship", "aliases"
        ),
        ("Sarah", "person", "cofounder", ("@sarah",)),
    ),
    Row(
        "ContextBundle: identity, preferences, topic, entity",
        lambda: {one.bundle_type for one in compiled().knowledge.list_bundles(**ADA)},
        {"identity_core", "global_prefs", "topic", "entity"},
    ),
    Row(
        "ContextBundle: composite, of a persona, stands in L1; settings of a call are a miss",
        as_persona,
        (1, 1, 24),
    ),
    Row("ContextBundle: a clean one is never built again", edited, [1, 1, 2]),
    Row(
        "ContextBundle: hits of what prompts have shown",
        used,
        {"entity/person/sarah": 2, "global_prefs": 2, "identity_core": 2, "topic/prisma-orm": 2},
    ),
    Row(
        "ClientPresence: predictedTopics by navigation, notebook and persona",
        lambda: [
            present(**opened)[1].predicted_topics
            for opened in (
                {"path": "/docs/prisma-orm"},
                {"active_notebook_id": "prisma"},
                {"path": "/home"},
            )
        ],
        [("topic/prisma-orm",), ("topic/prisma-orm",), ()],
    ),
    Row("ClientPresence: the conversation in front is read ahead", lambda: embedded(ahead=True), 1),
    Row(
        "ClientPresence: one that nobody has open is not", lambda: embedded(ahead=False) > 390, True
    ),
    Row("ClientPresence: idleSince", lambda: present(idle=True)[1].idle_since, NOW),
    Row(
        "what was predicted, and what of it came up",
        lambda: fields(predicted(), "predicted", "topics", "entities"),
        (("Prisma ORM",), ("Prisma ORM",), ("Sarah",)),
    ),
    Row(
        "TopicProfile: importance 0.5 at first; first and last time; model of its vector; when it was made",
        lambda: (
            topic().importance_score,
            *fields(
                came_up()[0], "first_engaged_at", "last_engaged_at", "embedding_model", "created_at"
            ),
        ),
        (0.5, NOW - timedelta(days=2), NOW, "wordllama-l2-supercat-256-sif", NOW),
    ),
    Row("TopicProfile: one of a slug", lambda: refused(twice), "InputError"),
    Row(
        "ContextBundle: tokens, priority, when it was compiled and used",
        lambda: fields(
            bundle(compiled(), "topic/prisma-orm"),
            "token_count",
            "priority",
            "compiled_at",
            "last_used_at",
        ),
        (17, 0.5, NOW, None),
    ),
    Row(
        "ConversationCompaction: keyDecisions, openQuestions, codeArtifacts",
        lambda: fields(decided(), "key_decisions", "open_questions", "code_artifacts"),
        (
            ("We decided on quince for the rootstocks; the plan is in `orchard/plan.md`.",),
            ("[OPEN] Who waters the saplings in August?",),
            ("orchard/plan.md",),
        ),
    ),
    Row(
        "ClientPresence: everything that a device tells",
        lambda: fields(
            beats(),
            *(
                "device_id",
                "active_conversation_id",
                "visible_conversation_ids",
                "active_notebook_id",
            ),
            *(
                "active_persona_id",
                "last_navigation_path",
                "local_time",
                "session_started_at",
                "last_heartbeat_at",
            ),
            *("is_online", "idle_since"),
        ),
        (
            "phone",
            "c1",
            ("c1", "c2"),
            "n1",
            "p1",
            "/b",
            NOW,
            NOW,
            NOW + timedelta(minutes=1),
            True,
            None,
        ),
    ),
    Row(
        "ClientPresence: navigationHistory",
        lambda: [path for path, _ in beats().navigation_history],
        ["/a", "/b"],
    ),
    Row(
        "layers: floor, priority, elasticity; of L1, what there is",
        layers,
        {
            "L1": (0, 95, 0.1),
            "L2": (300, 70, 0.6),
            "L3": (150, 65, 0.7),
            "L4": (200, 88, 0.3),
            "L5": (200, 75, 0.5),
            "L6": (500, 90, 0.4),
        },
    ),
    Row(
        "priorities by situation: topics with two, or in depth; history of a short dialogue",
        lambda: (
            layers(topic_count=2)["L2"][1],
            layers(depth="deep")["L2"][1],
            layers(message_count=20)["L6"][1],
        ),
        (85, 85, 80),
    ),
    Row(
        "strategies by compression ratio",
        strategies,
        ["full", "windowed", "compacted", "multi_level"],
    ),
    Row(
        "strategies: windowed up to 2.5, compacted up to 8",
        lambda: (COMPACTION.windowed_ratio, COMPACTION.compacted_ratio),
        (2.5, 8.0),
    ),
    Row(
        "zones: older 40 of 75, with 10 and 25; levels 3, 2 and 1 with 5, 10 and 15; one if windowed",
        lambda: (
            round(OLDER_SHARE * 75),
            PARTS["compacted"],
            PARTS["multi_level"],
            PARTS["windowed"],
        ),
        (40, (10, 25), (5, 10, 15), (1,)),
    ),
    Row(
        "chunks of 20 messages, five to a level",
        lambda: (ContextSettings().span_messages, TREE.fan_out),
        (20, 5),
    ),
    Row(
        "importance: 5 log2(words + 1), at most 25; user, question, problem + 5; decision + 10; item + 2",
        lambda: [
            importance(text, from_user=text == "a b c")
            for text in (
                "a b d",
                "w " * 40,
                "a b c",
                "a b d?",
                "a b error",
                "a b agreed",
                "- a b d",
            )
        ],
        [10.0, 25.0, 15.0, 15.0, 15.0, 20.0, 12.0],
    ),
    Row(
        "importance: 15 for a code block",
        lambda: (
            importance(f"{'`' * 3}\na b d\n{'`' * 3}", from_user=False)
            - importance("a b d", from_user=False)
        ),
        15.0,
    ),
    Row("JIT retrieval: 40 % for memories, 60 % for ACUs", lambda: MEMORY_SHARE, 0.4),
    Row(
        "without a conversation: no arc, no floor of history",
        lambda: fields(layers_of_none(), "arc", "history"),
        (None, 0),
    ),
    Row("coverage: each of 200 messages once; and the time that it took", covered, (200, True)),
    Row(
        "assembler: system first, the message last",
        lambda: [one.type for one in compiled().assemble(ABOUT, **C1).messages],
        ["system", "human"],
    ),
    Row(
        "metadata: topics, entities, strategy, total",
        lambda: fields(
            compiled().assemble(ABOUT, **C1).report,
            "topics",
            "entities",
            "history_strategy",
            "allocation_strategy",
        ),
        (("Prisma ORM",), ("Sarah",), "empty", "elastic"),
    ),
    Row(
        "cache hits by layer",
        lambda: fields(compiled().assemble(ABOUT, **C1).report, "cache_hits", "cache_misses"),
        ({"L1": 2, "L2": 1, "L3": 1}, {"L1": 0, "L2": 0, "L3": 0}),
    ),
    Row(
        "chart: every layer, topics and hits",
        lambda: [
            part in compiled().assemble(ABOUT, **C1).report.to_text()
            for part in (
                "CONTEXT BUDGET",
                "L0 Identity",
                "L7 Message",
                "Prisma ORM",
                "2 of 2 in L1",
            )
        ],
        [True] * 5,
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize("row", ROWS, ids=[row.says for row in ROWS])
def test_what_the_seed_says_holds(row: Row) -> None:
    assert row.call() == row.expected
