"""Who owns a path of an object store: one LogSet at a time, and what becomes of the data when it goes.

`plan` has the rules, `paths` says when two claims mean the same data, `erase` deletes it.
"""

__all__: list[str] = []
