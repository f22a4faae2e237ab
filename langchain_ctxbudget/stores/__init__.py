"""Where records live: LangGraph stores and what is kept in them."""
