"""OpenAI's API in front of a user's agent: responses, chat completions, models.

    request ─ what is asked ─ which session ─ a turn of the agent ─ its events ─ response

It holds no conversation: ids name turns and sessions of the agent, which keeps them.
"""
