"""A user's memory, files and shell for clients of the Model Context Protocol.

An adapter over the gateway, which decides everything: which tools there are, what they may do, what
a person has to allow, and what a model is shown.
"""
