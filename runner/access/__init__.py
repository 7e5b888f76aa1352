"""Access for people without this account: named tokens, and the calls of their agents.

A token belongs to one user and opens nothing but that user's gateway, within the token's scopes.
"""
