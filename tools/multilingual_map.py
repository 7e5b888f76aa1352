"""Write `guest/embedding/multilingual.npy`: what takes vectors of multilingual-e5-small to where
the default model has the same meaning in English.

    .venv/bin/python -m tools.multilingual_map

It is the matrix that brings English texts of `bench/quality`, as the one model has them, nearest to
what the other makes of them (ridge regression). Of other languages, only the mean is used: that of
`bench/quality/languages/development.tsv`. Takes minutes; it needs the extra `multilingual`.
"""

from typing import Final

import numpy as np

from bench.quality import corpus
from guest.embedding import minilm, multilingual
from guest.embedding.backends import unit_rows

_RIDGE: Final = 10.0
"""Chosen on the development half, as the means."""
_MOST_CHARS: Final = 110
"""Longer texts say no more of single words, and take longer."""


def english(model: multilingual.Multilingual) -> list[str]:
    """What is said and asked in the corpus, in English."""
    parts = (corpus.notes(), corpus.conversations(), *map(corpus.chats, corpus.HALVES))
    said = dict.fromkeys(
        text
        for part in parts
        for text in (*(e.text for e in part.entries), *(q.text for q in part.questions))
    )
    tokenizer = model.english.tokenizer
    return [
        text
        for text in said
        if len(text) < _MOST_CHARS and multilingual.known_share(tokenizer, text) == 1
    ]


def main() -> None:
    """Write the file."""
    model = multilingual.load()
    texts = english(model)
    other, target = multilingual.e5_vectors(model.e5, texts), model.english.encode(texts)
    centred = unit_rows(other - other.mean(0))
    penalty = _RIDGE * np.eye(minilm.DIMENSIONS)
    middle = target.mean(0)
    matrix = np.linalg.solve(centred.T @ centred + penalty, centred.T @ (target - middle))
    said = [text for row in corpus.languages("development") for text in row[1:3]]
    mean = multilingual.e5_vectors(model.e5, said).mean(0)
    np.save(multilingual.MAP, np.vstack([mean, matrix, middle / 2]).astype(np.float16))


if __name__ == "__main__":
    main()
