"""Covering arrays: a small set of rows that contains every allowed pair of levels."""

import itertools
import random


def pairs(factors):
    """Yields all pairs of levels of different factors, each level as (factor, level), in order."""
    levels = [[(factor, level) for level in factors[factor]] for factor in factors]
    for one, other in itertools.combinations(levels, 2):
        yield from itertools.product(one, other)


def _row(factors, uncovered, allowed, start, order):
    """Returns a row that contains the pair `start`; None if no level of some factor is compatible with it."""
    row = dict(start)
    for factor in order:
        if factor in row:
            continue
        free = [level for level in factors[factor] if all(allowed((factor, level), taken) for taken in row.items())]
        if not free:
            return None
        row[factor] = max(free, key=lambda level: sum(frozenset({(factor, level), taken}) in uncovered for taken in row.items()))
    return row


def _covered(row):
    return {frozenset(pair) for pair in itertools.combinations(row.items(), 2)}


def array(factors, refused, tries=12):
    """Returns rows {factor: level}, in descending order of the pairs that they add, and the pairs that no row can contain because of refused ones.
    refused: a set of frozenset({(factor, level), (factor, level)}). Greedy: each row is the best of several attempts (Cohen et al. 1997, AETG).
    """
    draw = random.Random(1)

    def allowed(one, other):
        return frozenset({one, other}) not in refused

    uncovered = dict.fromkeys(frozenset(pair) for pair in pairs(factors) if allowed(*pair))
    rows, left = [], []
    while uncovered:
        start = next(iter(uncovered))
        found = []
        for _ in range(tries):
            order = draw.sample(list(factors), len(factors))
            row = _row(factors, uncovered, allowed, start, order)
            if row:
                found.append(row)
        if not found:
            left.append(start)
            del uncovered[start]
            continue
        best = max(found, key=lambda row: sum(pair in uncovered for pair in _covered(row)))
        for pair in _covered(best):
            uncovered.pop(pair, None)
        rows.append({factor: best[factor] for factor in factors})
    return rows, left
