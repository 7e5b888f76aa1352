"""Conversations: sessions and their events, and how they are forgotten."""
