"""The Agent Client Protocol: an editor talks to a user's agent.

The editor's files are not the agent's: what it mentions is shown to the agent as text, and what the
agent writes lies in the user's workspace.
"""
