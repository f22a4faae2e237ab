"""LangChain and LangGraph classes over a pipeline."""
