"""Commands for who runs the agents: their guests, images, users, and who is let in."""
