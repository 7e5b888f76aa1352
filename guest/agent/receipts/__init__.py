"""What keeps an answer true: requests to keep something, claims to have kept it, and the
runtime's own save where a model has only claimed it."""
