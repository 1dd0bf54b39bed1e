"""Objectives and bounds that are written down: some are computed again, and what is worse is told."""

import json
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent.parent / "benchmarks"))

import pins

PROBLEMS = json.loads(pins.PINS.read_text())["problems"]
SOME = range(5, pins.COUNT, 11)  # quick ones; the step meets every loss, constraint and door


def by_number(number):
    return [pin for pin in PROBLEMS["pins"] if pin["name"].startswith(f"{number:03} ")]


@pytest.mark.parametrize("number", SOME)
def test_a_problem_is_solved_as_well_as_it_was(number):
    now = pins.solved(pins.draw(number))
    worse, _ = pins.compared({"seconds": 0, "pins": now}, {"seconds": 0, "pins": by_number(number)})
    assert worse == []


@pytest.mark.parametrize("numbers", [SOME, range(pins.COUNT)])
def test_every_loss_constraint_and_door_is_there(numbers):
    names = [by_number(number)[0]["name"][4:].split(", ")[:3] for number in numbers]
    losses, constraints, doors = zip(*names, strict=True)
    assert set(losses) == {*pins.LOSSES, "multinomial"}
    assert set(constraints) == set(pins.CONSTRAINTS)
    assert set(doors) == set(pins.DOORS)


def test_every_two_of_loss_constraint_and_door_meet():
    names = [pin["name"][4:].split(", ")[:3] for pin in PROBLEMS["pins"] if "multinomial" not in pin["name"]]
    assert len({(loss, constraint) for loss, constraint, _ in names}) == 7 * 5
    assert len({(loss, door) for loss, _, door in names}) == 7 * 13
    assert len({(constraint, door) for _, constraint, door in names}) == 5 * 13


PIN = pins.pin("a", size=3, k=3, objective=2.0, bound=1.9, status="optimal", tol=1e-3)


@pytest.mark.parametrize(
    ("altered", "told"),
    [
        ({"objective": 2.0 + 1e-8}, "a: objective 2.00000001, 2.0 before"),
        ({"objective": float("nan")}, "a: objective nan, 2.0 before"),
        ({"bound": 1.897}, "a: lower bound 1.897, 1.9 before"),
        ({"status": "stalled"}, "a: stalled, optimal before"),
        ({"size": 4}, "a: 4 features with k = 3"),
        ({"k": 2}, "a: k = 2 chosen, 3 before"),
        ({"name": "b"}, "a: not computed"),
    ],
)
def test_what_is_worse_is_told(altered, told):
    worse, summary = pins.compared({"seconds": 1.5, "pins": [PIN | altered]}, {"seconds": 1.2, "pins": [PIN]})
    assert told in worse
    assert "0 better; 1.5 s of processor time, 1.2 s before" in summary


@pytest.mark.parametrize(
    ("altered", "better"),
    [
        ({}, 0),
        ({"objective": 2.0 + 1e-9, "bound": 1.8985}, 0),  # within the tolerances
        ({"objective": 1.99, "size": 2}, 1),
        ({"bound": 1.95}, 1),
    ],
)
def test_what_is_not_worse_is_counted(altered, better):
    now, before = {"seconds": 1.0, "pins": [PIN | altered]}, {"seconds": 1.0, "pins": [PIN]}
    worse, summary = pins.compared(now, before)
    assert worse == []
    assert summary.startswith(f"1 pins: 0 worse, {better} better")


def test_the_command_says_whether_something_is_worse(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(pins, "solved", lambda case: [PIN | {"name": case.name}])
    monkeypatch.setattr(pins, "PINS", tmp_path / "pins.json")

    def status(*options):
        monkeypatch.setattr(sys, "argv", ["pins.py", *options])
        return pins.main()

    assert status("--update") == 0
    assert status() == 0
    assert capsys.readouterr().out.startswith("problems: 200 pins: 0 worse, 0 better")
    monkeypatch.setattr(pins, "solved", lambda case: [PIN | {"name": case.name, "objective": 2.0 + (case.k == 1)}])
    assert status() == 1
    *worse, summary = capsys.readouterr().out.splitlines()
    assert worse[0].endswith(": objective 3.0, 2.0 before")
    assert f"200 pins: {len(worse)} worse, 0 better" in summary
