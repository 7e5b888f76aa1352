"""What may leave the guests: rules, presets and the decision, the same for everybody who asks."""
