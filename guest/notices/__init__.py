"""What a person is told when no turn tells it."""
