"""Google: Gemini, also through Vertex AI."""

from langchain_ctxbudget.providers.profile import Profile

GOOGLE = Profile(name="google", reads_own_media=True)
