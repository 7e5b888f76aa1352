"""How well search finds what it should: `make bench-quality`.

The notes, conversations and questions are made up for this, and committed as text beside the code:
one person's memory over two years, and two others' long chats, one to tune on and one to judge by.
"""
