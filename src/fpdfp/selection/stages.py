"""In which order many related problems are solved."""

from __future__ import annotations

from collections.abc import Sequence

from fpdfp.selection.task import Task

#: Of the problems one in so many is solved first, if there are more.
COARSE = 8


def arrange(tasks: Sequence[Task]) -> list[list[Task]]:
    """Return which tasks are solved first, and which then: coarse ones, with all rows before those with some."""
    of_fold: dict[int, list[Task]] = {}
    for task in tasks:
        of_fold.setdefault(task.fold, []).append(task)
    main = -1 if -1 in of_fold else next(iter(of_fold))
    numbers = {fold: list(range(len(own))) for fold, own in of_fold.items()}
    done: dict[int, set[int]] = {fold: set() for fold in of_fold}
    stages: list[list[Task]] = []
    spacing = COARSE if len(of_fold[main]) > COARSE else 1
    for level in [spacing >> shift for shift in range(spacing.bit_length())]:
        fresh: dict[int, list[Task]] = {}
        for fold, own in numbers.items():
            some = sorted({*own[level // 2 :: level], own[-1]} - done[fold])
            done[fold] |= set(some)
            fresh[fold] = [of_fold[fold][place] for place in some]
        rest = [task for fold, own in fresh.items() if fold != main for task in own]
        stages += [fresh[main], rest] if not stages else [fresh[main] + rest]
    return [stage for stage in stages if stage]
