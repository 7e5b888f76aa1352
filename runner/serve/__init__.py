"""The HTTP server of all users of a host: the web console and the APIs of other faces.

    connection ─ Host, Origin, headers, size ─ who calls ─ scope ─ gateway

Everything that it does for a user goes through the gateway of that user's agent.
"""
