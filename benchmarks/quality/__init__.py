"""The parts of `context_quality.py`: conversations, systems, scores and what is shown of them."""
