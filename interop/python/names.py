"""Unique names."""

import itertools

numbers = itertools.count()


def fresh(stem):
    return f"{stem}-made-{next(numbers)}"
