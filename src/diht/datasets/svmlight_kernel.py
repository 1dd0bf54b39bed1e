r"""The compiled parser of svmlight text.  Importing this module loads numba.

The text must end in ``\n``: that byte ends every inner loop, so no position is read beyond it.  A row
takes at least two bytes of the text (a token and the end of its line) and a pair three (a digit, a colon, the end of
the token), so arrays of half and of a third of the text's length are never overrun, whatever the bytes.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diht.design.kernels import jit

__all__ = ["decimal", "parse"]

NEWLINE, HASH, PLUS, MINUS, POINT, ZERO, COLON = (ord(c) for c in "\n#+-.0:")
LARGEST_EXPONENT = 250  # 10**250 times 2**64 and its rounding error are far from overflow and underflow
EXACT_INTEGER, EXACT_POWER = 2**53, 22  # integers and powers of ten that a double holds exactly
MANTISSA_DIGITS, INDEX_DIGITS = 19, 18  # what fits a uint64 and an int64
SPLITTER = 2.0**27 + 1.0  # Veltkamp: halves a 53-bit mantissa
SLACK = 2.0**-98  # above the relative error of a double-double product, about 2**-102


def _powers_of_ten() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the powers 10**e, e = -LARGEST_EXPONENT, ..., LARGEST_EXPONENT, as sums high + low of two doubles."""
    exact = [Fraction(10) ** e for e in range(-LARGEST_EXPONENT, LARGEST_EXPONENT + 1)]
    high = [float(power) for power in exact]
    low = [float(power - Fraction(h)) for power, h in zip(exact, high, strict=True)]
    return np.array(high), np.array(low)


TEN_HIGH, TEN_LOW = _powers_of_ten()


@jit
def _byte(text: NDArray[np.uint8], p: int) -> Any:
    return text[np.uint64(p)]  # unsigned: no code for negative indices, a third faster in all


@jit
def _digit(text: NDArray[np.uint8], p: int) -> Any:
    """Return the digit at `p`; more than 9 where there is none."""
    return np.uint8(_byte(text, p) - np.uint8(ZERO))


@jit
def _value(text: NDArray[np.uint8], p: int) -> Any:
    return np.int64(_digit(text, p))


@jit
def _scaled(mantissa: np.uint64, exponent: int) -> tuple[float, bool]:
    """Mantissa times 10**exponent, and whether the rounding is certainly correct.

    Small operands give one correctly rounded operation.  Otherwise the product is formed to about 102 bits; it is
    certain when everything within the error bound rounds to the same double.
    """
    if mantissa <= np.uint64(EXACT_INTEGER) and -EXACT_POWER <= exponent <= EXACT_POWER:
        if exponent < 0:
            return np.float64(mantissa) / TEN_HIGH[LARGEST_EXPONENT - exponent], True
        return np.float64(mantissa) * TEN_HIGH[LARGEST_EXPONENT + exponent], True
    if exponent < -LARGEST_EXPONENT or exponent > LARGEST_EXPONENT:
        return 0.0, False
    a = np.float64(mantissa)
    a_low = np.float64(np.int64(mantissa - np.uint64(a)))
    b = TEN_HIGH[LARGEST_EXPONENT + exponent]
    b_low = TEN_LOW[LARGEST_EXPONENT + exponent]
    product = a * b
    a_head = SPLITTER * a - (SPLITTER * a - a)
    b_head = SPLITTER * b - (SPLITTER * b - b)
    a_tail, b_tail = a - a_head, b - b_head
    error = ((a_head * b_head - product) + a_head * b_tail + a_tail * b_head) + a_tail * b_tail
    low = error + (a * b_low + a_low * b)
    slack = product * SLACK
    below, above = product + (low - slack), product + (low + slack)
    return below, below == above


@jit
def decimal(text: NDArray[np.uint8], p: int) -> tuple[float, int, bool]:
    """Read the decimal number at `p`: its value, where it ends, and whether the value is certain.

    Correctly rounded, as Python's ``float`` is, whenever certain; else the caller asks ``float`` itself.
    """
    negative = _byte(text, p) == MINUS
    if negative or _byte(text, p) == PLUS:
        p += 1
    mantissa = np.uint64(0)
    significant = seen = exponent = 0
    for part in range(2):  # before and after the point
        first = p
        while True:
            digit = _digit(text, p)
            if digit > 9:
                break
            mantissa = mantissa * np.uint64(10) + np.uint64(digit)
            significant += 1 if significant > 0 or digit > 0 else 0
            p += 1
        seen += p - first
        if part == 1:
            exponent = first - p
        elif _byte(text, p) != POINT:
            break
        else:
            p += 1
    if _byte(text, p) == ord("e") or _byte(text, p) == ord("E"):
        p += 1
        sign = -1 if _byte(text, p) == MINUS else 1
        if _byte(text, p) == MINUS or _byte(text, p) == PLUS:
            p += 1
        first, power = p, 0
        while _digit(text, p) <= 9:
            power = min(10 * power + _value(text, p), 99_999_999)
            p += 1
        exponent += sign * power
        if p == first:
            seen = 0
    if seen == 0 or significant > MANTISSA_DIGITS:
        return 0.0, p, False
    value, certain = _scaled(mantissa, exponent)
    return -value if negative else value, p, certain


@jit
def _is_blank(c: Any) -> Any:
    return c == 32 or (9 <= c <= 13 and c != NEWLINE)


@jit
def _ends_token(c: Any) -> Any:
    return c == 32 or 9 <= c <= 13 or c == HASH


@jit
def _token_end(text: NDArray[np.uint8], p: int) -> int:
    while not _ends_token(_byte(text, p)):
        p += 1
    return p


@jit
def _next_token(text: NDArray[np.uint8], p: int) -> int:
    """Where the next token of the line begins, or the end of the line."""
    while _is_blank(_byte(text, p)):
        p += 1
    if _byte(text, p) == HASH:
        while _byte(text, p) != NEWLINE:
            p += 1
    return p


@jit
def _is_query(text: NDArray[np.uint8], p: int) -> Any:
    """Whether the token at `p` is ``qid:...``."""
    return (
        _byte(text, p) == ord("q")
        and _byte(text, p + 1) == ord("i")
        and _byte(text, p + 2) == ord("d")
        and _byte(text, p + 3) == COLON
    )


@jit
def parse(
    text: NDArray[np.uint8],
    target: NDArray[np.float64],
    row_at: NDArray[np.int64],
    row_end: NDArray[np.int64],
    index: NDArray[np.int64],
    value: NDArray[np.float64],
    hard_at: NDArray[np.int64],
    hard_slot: NDArray[np.int64],
) -> tuple[int, int, int, int, bool, int]:
    r"""Parse whole lines of svmlight text into the given arrays.

    Parameters
    ----------
    text
        The bytes, the last of them ``\n``.
    target, row_at, row_end
        For each row, its target (NaN: none given), where its line's first token is in the text, and the number
        of pairs up to its end.  At least half as long as the text.
    index, value
        For each pair.  At least a third as long as the text.
    hard_at, hard_slot
        For each token whose number is left to the caller, where it begins, and the pair it belongs to, or -1 - row
        for a target.  At least half as long as the text: a token and what ends it are two bytes.

    Returns
    -------
    lines, rows, pairs, hard : int
        How many lines were read to their end, and how many of the others were written.
    ordered : bool
        Whether the indices of every row are strictly ascending.
    stop : int
        Where a token begins that is no index:value pair, or the length of the text.
    """
    p = lines = rows = pairs = hard = 0
    ordered = True
    while p < text.size:
        p = _next_token(text, p)
        if _byte(text, p) == NEWLINE:
            lines += 1
            p += 1
            continue
        row_at[rows] = p
        number, end, certain = decimal(text, p)
        if _byte(text, end) == COLON:  # the line begins with a pair
            target[rows] = np.nan
        else:
            if not certain or not _ends_token(_byte(text, end)):
                hard_at[hard], hard_slot[hard] = p, -1 - rows
                hard += 1
            target[rows] = number
            p = _token_end(text, end)
        previous = -1
        while True:
            p = _next_token(text, p)
            if _byte(text, p) == NEWLINE:
                break
            if _is_query(text, p):
                p = _token_end(text, p)
                continue
            first, j = p, 0
            while _digit(text, p) <= 9 and p - first < INDEX_DIGITS:
                j = 10 * j + _value(text, p)
                p += 1
            if p == first or _byte(text, p) != COLON:
                return lines, rows, pairs, hard, ordered, first
            number, end, certain = decimal(text, p + 1)
            if not certain or not _ends_token(_byte(text, end)):
                hard_at[hard], hard_slot[hard] = first, pairs
                hard += 1
            index[pairs], value[pairs] = j, number
            pairs += 1
            ordered = ordered and j > previous
            previous = j
            p = _token_end(text, end)
        row_end[rows] = pairs
        rows += 1
        lines += 1
        p += 1
    return lines, rows, pairs, hard, ordered, text.size
