"""Lists of near-optimal models against enumeration: `python tests/fuzz_near.py --seeds 0:500 [--shared]`.

Problems are those of the fuzzer (`fuzz_cases.py`), small enough that the best model on every support is known (`fuzz_oracle.py`). A
support that is not listed, and whose witness is below `exhausted_below`, makes that claim false; so does a listed model whose
objective is above the threshold, or above that of a witness with the same features.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from itertools import combinations, product
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from brute_force import seeds_given
from diht import near_optimal
from diht.estimators.near import NearOptimal
from fuzz_cases import Case, draw, draw_shared
from fuzz_judge import OFF, WRONG, _problem
from fuzz_oracle import Model, Oracle, _fits

HIDDEN = Decimal("1e10")  # times what counts as zero: fits of objectives that are smaller may be coarse
EPSILONS, MOST = (0.0, 0.05, 0.3, 1.0), (1000, 1000, 3)


def supports_of(near: NearOptimal) -> Iterator[tuple[int, ...]]:
    """All supports of a list, exchanges of copies included."""
    for support, number in zip(near.supports, near.multiplicity, strict=True):
        sets = [set(features.tolist()) for features in near.classes]
        rest = set(support.tolist()).difference(*sets)
        chosen = [combinations(sorted(copies), len(copies & set(support.tolist()))) for copies in sets]
        made = [tuple(sorted(rest.union(*parts))) for parts in product(*chosen)]
        assert len(set(made)) == number
        yield from made


def witnesses(oracle: Oracle) -> dict[tuple[int, ...], Model]:
    """The best model on each support of exactly k units; with signs of one target the best on any part of it."""
    free = [i for i in range(len(oracle.units)) if i not in oracle.kept]
    chosen = [oracle.kept | set(some) for some in combinations(free, oracle.k)]
    supports = [tuple(sorted(j for i in units for j in oracle.units[i])) for units in chosen]
    known = {
        tuple(np.flatnonzero(row).tolist()): model for row, model in zip(oracle.supports, oracle.models, strict=True)
    }
    if oracle.case.sign is None or oracle.case.n_targets > 1:
        return {support: known[support] for support in supports}
    parts = {s: [m for part, m in known.items() if set(part) <= set(s)] for s in supports}
    return {s: min(models, key=lambda m: np.nan_to_num(m.objective, nan=np.inf)) for s, models in parts.items()}


def wrong(case: Case, epsilon: float, max_models: int = 1000) -> tuple[NearOptimal, list[str]]:
    """What is false of the list of a case."""
    near = near_optimal(_problem(case, case.k), epsilon, max_models)
    oracle = Oracle(case)
    listed, findings = list(supports_of(near)), []
    if len(set(listed)) < len(listed):
        findings.append("a support is listed twice")
    known = witnesses(oracle)
    if not set(listed) <= set(known):
        findings.append("a support is listed that does not have k features")
    exactly = {}
    for support, model in known.items():
        with np.errstate(all="ignore"):
            exactly[support] = oracle.exact(_fits(case).polished(model))
    nil, below = oracle.smallest, Decimal(near.exhausted_below)
    findings += [
        f"{support} costs {exactly[support]:.12g}, below {below:.12g}, and is not listed"
        for support in set(known) - set(listed)
        if exactly[support] + OFF * abs(exactly[support]) + nil < below
    ]
    limit = Decimal(near.threshold)
    for support, objective in zip(near.supports, near.objectives.tolist(), strict=True):
        value = Decimal(objective)
        if value > limit + 2 * OFF * abs(limit) + nil:
            findings.append(f"{support} is listed with {value:.12g}, above {limit:.12g}")
        least = exactly.get(tuple(support.tolist()), value)
        if value > least + WRONG * abs(least) + HIDDEN * nil:
            findings.append(f"{support} is listed with {value:.15g}, and has a model of {least:.15g}")
    within = sum(value + OFF * abs(value) + nil < limit for value in exactly.values())
    if len(near) == max_models and near.complete and within > len(listed):
        findings.append("the list is cut and said to be complete")
    if near.complete and not near.objectives[0] * (1.0 + epsilon) <= near.threshold * (1.0 + 1e-9) + float(nil):
        findings.append("the threshold is below that of the best model")
    return near, findings


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=seeds_given, default=(0, 500), help="a range first:end")
    parser.add_argument("--shared", action="store_true", help="problems of several targets that share features")
    arguments = parser.parse_args()
    counts: Counter[str] = Counter()
    for seed in range(*arguments.seeds):
        case = (draw_shared if arguments.shared else draw)(seed)
        near, findings = wrong(case, EPSILONS[seed % len(EPSILONS)], MOST[seed % len(MOST)])
        kind = "cut" if len(near) == MOST[seed % len(MOST)] else "hostile" if case.ingredients else "ordinary"
        counts.update({"problems": 1, f"{kind} complete": near.complete, f"{kind} not complete": not near.complete})
        counts.update({"models": len(near), "with copies": bool(near.classes), "false": bool(findings)})
        for finding in findings:
            print(f"FALSE seed {seed}: {finding}; {case}", flush=True)
        if not near.complete and kind != "cut":
            print(f"not complete, seed {seed}: {case}", file=sys.stderr, flush=True)
    print(dict(counts))
    return int(counts["false"] > 0)


if __name__ == "__main__":
    sys.exit(main())
