"""Mistral's own API."""

from langchain_ctxbudget.content import Shape
from langchain_ctxbudget.providers.cache_terms import CacheTerms
from langchain_ctxbudget.providers.media_forms import IMAGE_TYPES, MediaForms, Readable
from langchain_ctxbudget.providers.media_rules import (
    MEGABYTE,
    MediaLimits,
    MediaRates,
    MediaRules,
    Patches,
)
from langchain_ctxbudget.providers.profile import CallIds, OwnItems, Profile

# Of a user's blocks, `langchain-mistralai` 1.1.6 translates images of LangChain and passes on all
# others; of a result's, it passes on all. The API's chunks are `text`, `image_url`, `document_url`
# and more (docs.mistral.ai, its OpenAPI document, read in November 2026). A message of the user
# right behind a result is refused: "Unexpected role 'user' after role 'tool'" (code 3230,
# avante-corp/avante.nvim pull request 2695), so media stay in results, where the OpenAPI document
# has them. How it takes sound is told in two ways: the narrow side, not at all.
_IMAGE = (Shape.CHAT, Shape.STANDARD, Shape.EARLIER)
_MEDIA_FORMS = MediaForms(
    kinds={
        "image": Readable(with_bytes=_IMAGE, by_address=_IMAGE, types=IMAGE_TYPES),
        "file": Readable(
            with_bytes=(Shape.DOCUMENT,), by_address=(Shape.DOCUMENT,), types="application/pdf"
        ),
    },
    not_in_results=frozenset({Shape.STANDARD, Shape.EARLIER}),
    blocks=frozenset({"reference"}),
)

MISTRAL = Profile(
    name="mistral",
    # "Tool call id was abc123 but must be a-z, A-Z, 0-9, with a length of 9." (langchain-ai/
    # langchain pull request 24668, read in November 2026).
    call_ids=CallIds(longest=9, shortest=9, refused="[^a-zA-Z0-9]"),
    # Its reasoning comes back as `thinking` with a list of texts (`langchain_mistralai/_compat.py`,
    # 1.1.6).
    items=OwnItems(authors=frozenset({"mistral"}), types=frozenset({"thinking", "reasoning"})),
    # "Unexpected role 'user' after role 'tool'" (datapizza-labs/datapizza-ai issue 98,
    # BerriAI/litellm issue 17761; read in November 2026). Later versions of mistral-common take it:
    # the narrow side.
    answers_follow_results=True,
    media_forms=_MEDIA_FORMS,
    # "Cached prompt tokens are billed at 10% of the standard input token price" ("Prompt caching",
    # docs.mistral.ai, read in November 2026), which has no marks and names no smallest prompt.
    cache=CacheTerms(read_price=0.1, most_marks=0),
    # https://docs.mistral.ai/capabilities/vision, "FAQ" (as others quote it; Nov 2026): at most 8
    # images, of 10 MB each, made smaller to 1,540 pixels. The patches of Pixtral are 16 pixels
    # wide, those of later models 28; a token more ends each row.
    media=MediaRules(
        rates=MediaRates(image=Patches(side=28, longest_side=1_540, patch_tokens=1.02)),
        images_of_families={"pixtral": Patches(side=16, longest_side=1_024, patch_tokens=1.02)},
        limits=MediaLimits(most_images=8, image_bytes=10 * MEGABYTE, file_bytes=50 * MEGABYTE),
    ),
)
