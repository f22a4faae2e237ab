"""What a span costs a prompt: medians of processor time with and without a provider, in one process.

Run: `python benchmarks/receipts.py [TURNS]`. Prompts with and without a provider take turns, on two
conversations that say the same.
"""

import sys
import time
from statistics import median
from typing import Any

from langchain_core.messages import AIMessage
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from langchain_ctxbudget import ContextPipeline
from langchain_ctxbudget.demo import DEMO_SYSTEM_PROMPT, demo_messages

WARM_UP_TURNS = 5
USER: Any = {"user_id": "ada"}


def main(turns: int) -> None:
    """Prints the medians of both, and what the span adds."""
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(InMemorySpanExporter()))
    unset = trace.ProxyTracerProvider()
    settings = {"max_context_tokens": 8_000, "learn": False}
    milliseconds: dict[str, list[float]] = {"off": [], "on": []}
    with ContextPipeline(settings, system_prompt=DEMO_SYSTEM_PROMPT) as pipeline:
        texts = [str(message.content) for message in demo_messages()]
        for name in milliseconds:
            pipeline.add_messages(demo_messages(), conversation_id=name, **USER)
        for turn in range(turns + WARM_UP_TURNS):
            text = texts[turn % len(texts)]
            for name, current in (("off", unset), ("on", provider)):
                trace.get_tracer_provider = lambda current=current: current  # type: ignore[misc]
                started = time.thread_time()
                context = pipeline.assemble(text, conversation_id=name, **USER)
                milliseconds[name].append((time.thread_time() - started) * 1_000)
                answer = [*context.turn, AIMessage(f"Yes. {text}")]
                pipeline.add_messages(answer, conversation_id=name, **USER)
    off, on = [median(times[WARM_UP_TURNS:]) for times in milliseconds.values()]
    print(
        f"{turns} prompts each: off {off:.2f} ms, on {on:.2f} ms, {on - off:+.2f} ({on / off:.3f})"
    )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
