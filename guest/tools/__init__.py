"""The tools that a model may call, and the pipeline that runs every call."""
