"""Google: Gemini, by its own API and through Vertex AI."""

from dataclasses import replace

from langchain_ctxbudget.content import Shape
from langchain_ctxbudget.providers.cache_terms import CacheTerms
from langchain_ctxbudget.providers.media_forms import MediaForms, Readable
from langchain_ctxbudget.providers.media_rules import (
    MEGABYTE,
    MediaLimits,
    MediaRates,
    MediaRules,
    Resolutions,
    WholeTiles,
)
from langchain_ctxbudget.providers.profile import OwnItems, Profile

# `langchain_google_genai` 4.4.3 reads these of an assistant's message (`_convert_to_parts`). Any id
# of a call is taken: calls and results are matched by name and order.
_ITEMS = frozenset(
    {
        "thinking",
        "reasoning",
        "executable_code",
        "code_execution_result",
        "function_call_signature",
        "server_tool_call",
        "server_tool_result",
    }
)

# Implicit caching of Gemini 2.5 and later. The smallest prompts: "Context caching"
# (ai.google.dev/gemini-api/docs/caching, updated on 23 October 2026). "A 90% discount" and the
# standard price for writing: "Context cache overview" (docs.cloud.google.com, read in November
# 2026). No lifetime is promised ("a short amount of time"), and there are no marks. A cache that an
# application makes itself (explicit caching) is its own matter.
_CACHE = CacheTerms(read_price=0.1, smallest_tokens=4_096, most_marks=0)

# https://ai.google.dev/gemini-api/docs/media-resolution, "Token counts", Nov 2026.
_BY_RESOLUTION = Resolutions(
    default_tokens=1_120,
    tokens_by_detail=(
        ("low", 280),
        ("media_resolution_low", 280),
        ("medium", 560),
        ("media_resolution_medium", 560),
        ("ultra_high", 2_240),
        ("media_resolution_ultra_high", 2_240),
    ),
)
_MEDIA = MediaRules(
    rates=MediaRates(
        # https://ai.google.dev/gemini-api/docs/image-understanding, Nov 2026: models up to
        # Gemini 2.5, and the dearer rule where a name does not tell.
        image=WholeTiles(tile_tokens=258, tile_side=768, small_side=384),
        # A page is 560 with Gemini 3, and 258 before (/media-resolution, /document-processing).
        page_tokens=560,
    ),
    images_of_families={"gemini-3": _BY_RESOLUTION, "gemini-4": _BY_RESOLUTION},
    # /image-understanding, /document-processing: "Inline image data limits your total request size
    # to 20MB", PDFs of 50 MB and 1,000 pages.
    limits=MediaLimits(
        most_images=3_600,
        file_bytes=50 * MEGABYTE,
        request_bytes=20 * MEGABYTE,
        most_pages=1_000,
    ),
)

# What `langchain-google-genai` 4.4.3 makes parts of (`_convert_to_parts`): an address it fetches,
# or passes on if it is one of Google's own. Of a result, it takes blocks of LangChain and OpenAI
# for media, and makes JSON of all others (`_convert_tool_message_to_parts`).
_ANY_KIND = (Shape.STANDARD, Shape.EARLIER, Shape.MEDIA)
_IMAGE = (*_ANY_KIND, Shape.CHAT)
_READABLE = Readable(
    with_bytes=_ANY_KIND, by_address=_ANY_KIND, by_file_id=(Shape.STANDARD, Shape.MEDIA)
)
# ai.google.dev/gemini-api/docs/image-understanding, /audio, /video-understanding and
# /document-processing, read in November 2026.
_MEDIA_FORMS = MediaForms(
    kinds={
        "image": replace(
            _READABLE,
            with_bytes=_IMAGE,
            by_address=_IMAGE,
            types="image/(png|jpeg|webp|heic|heif)",
        ),
        "audio": replace(_READABLE, types="audio/(wav|mp3|mpeg|aiff|aac|ogg|flac)"),
        "video": replace(
            _READABLE, types="video/(mp4|mpeg|mpg|mov|quicktime|avi|x-flv|webm|wmv|3gpp)"
        ),
        "file": replace(
            _READABLE, types="application/pdf|text/(plain|html|css|csv|markdown|xml|rtf)"
        ),
    },
    not_in_results=frozenset({Shape.MEDIA}),
    addresses="https?://",
    # Ids of OpenAI and Anthropic; the Gemini API "does not support gs:// references", says the
    # package.
    refused_file_ids=r"file[-_]|assistant-|gs://|s3://",
)

GOOGLE = Profile(
    name="google",
    items=OwnItems(authors=frozenset({"google"}), types=_ITEMS),
    reads_own_media=True,
    # "Please ensure that function call turn comes immediately after a user turn or after a function
    # response turn." (google-gemini/gemini-cli issue 26486, read in November 2026).
    calls_follow_others=True,
    media=_MEDIA,
    media_forms=_MEDIA_FORMS,
    cache=_CACHE,
    cache_by_family={"gemini-2.5": replace(_CACHE, smallest_tokens=2_048)},
    # "Invalid function name. Must start with a letter or an underscore. Must be alphanumeric ...",
    # an error of the API (read in Nov 2026). Dots and colons are taken as well; the narrow side.
    refused_in_names="^(?=[^a-zA-Z_])|[^a-zA-Z0-9_-]+",
)
GOOGLE_VERTEX = replace(
    GOOGLE,
    name="google-vertex",
    media_forms=replace(
        _MEDIA_FORMS, addresses="(https?|gs)://", refused_file_ids=r"file[-_]|assistant-|s3://"
    ),
)
