"""The servers of models: which run here, what models they have, and whether one can be used."""
