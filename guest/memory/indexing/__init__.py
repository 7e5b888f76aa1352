"""Texts cut into passages, and the vectors of passages: made, stored and kept in memory."""
