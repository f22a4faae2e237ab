"""`ContextPipeline`: the plain object over everything else; locks, workers and I/O."""
