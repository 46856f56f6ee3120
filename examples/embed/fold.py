"""The Python side of the example: a function that the C program calls, and that calls back a function of the program."""

import anyfn


@anyfn.register_func("fold.fold")
def fold(numbers, combine, names):
    """Combines all numbers with a function of the caller, and returns the result under a name."""
    total = numbers[0]
    for number in numbers[1:]:
        total = combine(total, number)
    return {names["result"]: total, "count": len(numbers)}
