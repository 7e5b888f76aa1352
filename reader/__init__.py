"""The reader: text of documents, in a process of its own in the shell guest."""
