"""Triton kernels: entries are loaded as they are stored and converted in registers, sums are in float64, in an order of their own.

No sum depends on the order in which programs run: partial sums are stored, and added up by others. Each sum of n products is off by
at most what any order of the sum of n products allows, but for `block_sums`, whose terms are rounded 18 times for each factor of
1,024 in their number.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import torch
import triton
import triton.language as tl

__all__ = ["block_sums", "central_slopes", "matvec", "rmatvec", "rmatvec_and_squares", "segment_dots", "spread"]

Tensor: TypeAlias = Any  # torch.Tensor

_TILE = 2048  # entries that a program holds at a time
_PARTIAL = 4096  # rows of a partial sum
_SUMMED = 1024  # terms of a partial sum of a vector


@triton.jit  # type: ignore[untyped-decorator]
def _block_sums(t, out, n, SIZE: tl.constexpr):  # type: ignore[no-untyped-def] # pragma: no cover
    block = tl.program_id(0).to(tl.int64)
    at = block * SIZE + tl.arange(0, SIZE)
    tl.store(out + block, tl.sum(tl.load(t + at, mask=at < n, other=0.0), 0))


def block_sums(t: Tensor) -> Tensor:
    """Add up a vector of float64."""
    t = t.contiguous()
    while t.numel() > 1:
        out = torch.empty(triton.cdiv(t.numel(), _SUMMED), dtype=torch.float64, device=t.device)
        _block_sums[(out.numel(),)](t, out, t.numel(), SIZE=_SUMMED)
        t = out
    return t[0] if t.numel() else t.sum()


@triton.jit
def _room(excess, mu, tau):  # type: ignore[no-untyped-def] # pragma: no cover
    """Return the positive root of ``mu r^2 + excess r - tau = 0``, infinite where there is none."""
    root = tl.sqrt(excess * excess + 4.0 * mu * tau)
    far = tl.where(mu > 0.0, (root - excess) / tl.where(mu > 0.0, 2.0 * mu, 1.0), float("inf"))
    return tl.where(excess > 0.0, 2.0 * tau / tl.where(excess > 0.0, excess + root, 1.0), far)


@triton.jit  # type: ignore[untyped-decorator]
def _central_slopes(  # type: ignore[no-untyped-def] # pragma: no cover
    us, ys, numbers, out, n, TURNED: tl.constexpr, BOUNDED: tl.constexpr, STRAIGHT: tl.constexpr, SIZE: tl.constexpr
):
    at = tl.program_id(0).to(tl.int64) * SIZE + tl.arange(0, SIZE)
    y = tl.load(ys + at, mask=at < n, other=1.0)
    d = tl.load(us + at, mask=at < n, other=1.0) - y
    mu, tau = tl.load(numbers), tl.load(numbers + 3)
    low, high = tl.load(numbers + 1) + 0.0 * y, tl.load(numbers + 2) + 0.0 * y
    least, most = tl.load(numbers + 4) + 0.0 * y, tl.load(numbers + 5) + 0.0 * y
    if TURNED:
        up = y > 0.0
        low, high = tl.where(up, low, -high), tl.where(up, high, -low)
        least, most = tl.where(up, least, -most), tl.where(up, most, -least)
    if not BOUNDED:
        end = tl.where(low == -float("inf"), high, low)
        room = _room(tl.where(low == -float("inf"), d - mu * end, mu * end - d), mu, tau)
        a = tl.where(low == -float("inf"), end - room, end + room)
    elif STRAIGHT:
        half = 0.5 * (high - low)
        far = half * tl.abs(d)
        root = tl.sqrt(tau * tau + far * far)
        room = half * tau * (1.0 + tau / (root + far)) / (tau + root)
        a = tl.where(d > 0.0, tl.minimum(high - room, most), tl.maximum(low + room, least))
    else:
        from_high, from_low, middle = _room(d - mu * high, mu, tau), _room(mu * low - d, mu, tau), 0.5 * (low + high)
        upper = tl.minimum(tl.maximum(high - from_high, middle), most)
        a = tl.where(from_high < from_low, upper, tl.maximum(tl.minimum(low + from_low, middle), least))
        left, right, steps = low, high, 0
        pending = (at < n).to(tl.int32)
        while tl.max(pending, 0) > 0:
            below, above = a - low, high - a
            inside = (below > 0.0) & (above > 0.0)
            pull_low, pull_high = tau / tl.where(inside, below, 1.0), tau / tl.where(inside, above, 1.0)
            value = mu * a - pull_low + pull_high - d
            rounding = 4.440892098500626e-16 * (tl.abs(d) + mu * tl.abs(a) + pull_low + pull_high)
            left, right = tl.where(value > 0.0, left, a), tl.where(value > 0.0, a, right)
            new = a - value / (mu + pull_low * pull_low / tau + pull_high * pull_high / tau)
            moved = new != a
            new = tl.where((left < new) & (new < right), new, 0.5 * (left + right))
            steps += 1
            goes_on = inside & (tl.abs(value) > rounding) & moved & (left < new) & (new < right) & (steps < 200)
            pending = tl.where(goes_on, pending, 0)
            a = tl.where(pending > 0, new, a)
    tl.store(out + at, a, mask=at < n)


def central_slopes(u: Tensor, y: Tensor, numbers: Tensor, pieces: Any, out: Tensor) -> None:
    """Write the a inside F with ``y + mu a - tau/(a - low) + tau/(high - a) = u``; `numbers`: mu, low, high, tau, inner ends."""
    bounded = bool(pieces.high - pieces.low < float("inf"))
    kinds = {"TURNED": bool(pieces.turned), "BOUNDED": bounded, "STRAIGHT": pieces.mu == 0.0}
    _central_slopes[(triton.cdiv(len(u), _SUMMED),)](u, y, numbers, out, len(u), **kinds, SIZE=_SUMMED)


@triton.jit  # type: ignore[untyped-decorator]
def _matvec(  # type: ignore[no-untyped-def] # pragma: no cover
    X, w, m, index, out, n, d, stride, ROWS: tl.constexpr, COLS: tl.constexpr, SQUARED: tl.constexpr, SOME: tl.constexpr
):
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    inside = rows[:, None] < n
    total = tl.zeros((ROWS, COLS), dtype=tl.float64)
    for start in range(0, d, COLS):
        cols = start + tl.arange(0, COLS)
        held = inside & (cols[None, :] < d)
        at = cols
        if SOME:
            at = tl.load(index + cols, mask=cols < d, other=0)
        x = tl.load(X + rows[:, None] * stride + at[None, :], mask=held, other=0.0).to(tl.float64)
        if SQUARED:
            x = x - tl.load(m + cols, mask=cols < d, other=0.0)[None, :]
            x = x * x
        total += x * tl.load(w + cols, mask=cols < d, other=0.0)[None, :]
    tl.store(out + rows, tl.sum(total, 1), mask=rows < n)


def matvec(X: Tensor, w: Tensor, center: Tensor | None = None, features: Tensor | None = None) -> Tensor:
    """Compute ``X w``, of all columns or some, rows being contiguous; with a center ``sum_j w_j (x_ij - center_j)^2``."""
    n, d = len(X), len(w)
    m, squared = (w, False) if center is None else (center, True)
    index, some = (w, False) if features is None else (features, True)
    out = torch.empty(n, dtype=torch.float64, device=X.device)
    cols = min(1024, max(32, triton.next_power_of_2(d)))
    rows = _TILE // cols
    kinds = {"ROWS": rows, "COLS": cols, "SQUARED": squared, "SOME": some}
    _matvec[(triton.cdiv(n, rows),)](X, w, m, index, out, n, d, X.stride(0), **kinds)
    return out


@triton.jit  # type: ignore[untyped-decorator]
def _rmatvec_and_squares(  # type: ignore[no-untyped-def] # pragma: no cover
    X, c, out, squares, n, d, stride, PARTIAL: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr
):
    cols = tl.program_id(0) * COLS + tl.arange(0, COLS)
    part = tl.program_id(1).to(tl.int64)
    total, square = tl.zeros((ROWS, COLS), dtype=tl.float64), tl.zeros((ROWS, COLS), dtype=tl.float64)
    for start in range(0, PARTIAL, ROWS):
        rows = part * PARTIAL + start + tl.arange(0, ROWS)
        held = (rows[:, None] < n) & (cols[None, :] < d)
        x = tl.load(X + rows[:, None] * stride + cols[None, :], mask=held, other=0.0).to(tl.float64)
        total += x * tl.load(c + rows, mask=rows < n, other=0.0)[:, None]
        square += x * x
    tl.store(out + part * d + cols, tl.sum(total, 0), mask=cols < d)
    tl.store(squares + part * d + cols, tl.sum(square, 0), mask=cols < d)


@triton.jit  # type: ignore[untyped-decorator]
def _rmatvec(  # type: ignore[no-untyped-def] # pragma: no cover
    X, c, m, out, n, d, stride, PARTIAL: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr, SQUARED: tl.constexpr
):
    cols = tl.program_id(0) * COLS + tl.arange(0, COLS)
    part = tl.program_id(1).to(tl.int64)
    total = tl.zeros((ROWS, COLS), dtype=tl.float64)
    center = tl.zeros((COLS,), dtype=tl.float64)
    if SQUARED:
        center = tl.load(m + cols, mask=cols < d, other=0.0)
    for start in range(0, PARTIAL, ROWS):
        rows = part * PARTIAL + start + tl.arange(0, ROWS)
        held = (rows[:, None] < n) & (cols[None, :] < d)
        x = tl.load(X + rows[:, None] * stride + cols[None, :], mask=held, other=0.0).to(tl.float64)
        if SQUARED:
            x = (x - center[None, :]) * (x - center[None, :])
        total += x * tl.load(c + rows, mask=rows < n, other=0.0)[:, None]
    tl.store(out + part * d + cols, tl.sum(total, 0), mask=cols < d)


def _partial_sums(X: Tensor, c: Tensor, center: Tensor | None) -> Tensor:
    n, d = X.shape
    cols = min(256, max(16, triton.next_power_of_2(d)))
    parts = triton.cdiv(n, _PARTIAL)
    out = torch.empty((parts, d), dtype=torch.float64, device=X.device)
    grid = triton.cdiv(d, cols), parts
    m = c if center is None else center
    squared = center is not None
    rows = 2 * _TILE // cols
    _rmatvec[grid](X, c, m, out, n, d, X.stride(0), PARTIAL=_PARTIAL, ROWS=rows, COLS=cols, SQUARED=squared)
    return out.sum(0)


def rmatvec(X: Tensor, c: Tensor) -> Tensor:
    """Compute ``X' c`` for an X whose rows are contiguous."""
    return _partial_sums(X, c.contiguous(), None)


def rmatvec_and_squares(X: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """Compute ``X' c`` and ``sum_i x_ij^2`` in one read, for an X whose rows are contiguous."""
    n, d = X.shape
    cols = min(128, max(16, triton.next_power_of_2(d)))
    parts, rows = triton.cdiv(n, _PARTIAL), _TILE // cols
    out = torch.empty((2, parts, d), dtype=torch.float64, device=X.device)
    kinds = {"PARTIAL": _PARTIAL, "ROWS": rows, "COLS": cols}
    grid = triton.cdiv(d, cols), parts
    _rmatvec_and_squares[grid](X, c.contiguous(), out[0], out[1], n, d, X.stride(0), **kinds)
    both = out.sum(1)
    return both[0], both[1]


def spread(X: Tensor, c: Tensor, center: Tensor) -> Tensor:
    """Compute ``sum_i c_i (x_ij - center_j)^2`` for an X whose rows are contiguous."""
    return _partial_sums(X, c.contiguous(), center.contiguous())


@triton.jit  # type: ignore[untyped-decorator]
def _segment_dots(  # type: ignore[no-untyped-def] # pragma: no cover
    firsts, ends, index, values, v, out, n, ROWS: tl.constexpr, LANES: tl.constexpr, GATHERED: tl.constexpr
):
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    first = tl.load(firsts + rows, mask=rows < n, other=0).to(tl.int64)
    end = tl.load(ends + rows, mask=rows < n, other=0).to(tl.int64)
    total = tl.zeros((ROWS, LANES), dtype=tl.float64)
    longest = tl.max(end - first, 0)
    for start in range(0, longest, LANES):
        at = first[:, None] + start + tl.arange(0, LANES)[None, :]
        held = at < end[:, None]
        x = tl.load(values + at, mask=held, other=0.0).to(tl.float64)
        if GATHERED:
            x = x * tl.load(v + tl.load(index + at, mask=held, other=0), mask=held, other=0.0)
        total += x
    tl.store(out + rows, tl.sum(total, 1), mask=rows < n)


def segment_dots(firsts: Tensor, ends: Tensor, index: Tensor | None, values: Tensor, v: Tensor | None) -> Tensor:
    """Compute ``sum values[p] v[index[p]]`` over the entries p of each segment, or of the values alone."""
    n = len(firsts)
    out = torch.empty(n, dtype=torch.float64, device=values.device)
    rows, lanes = 16, 32
    gathered = index is not None
    index, v = (index, v) if gathered else (values, values)
    _segment_dots[(triton.cdiv(n, rows),)](
        firsts, ends, index, values, v, out, n, ROWS=rows, LANES=lanes, GATHERED=gathered, num_warps=2
    )
    return out
