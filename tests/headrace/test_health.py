from __future__ import annotations

from headrace.health import DEAD_S, FRESH_S, PATIENCE_S, Health


class Time:
    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def health(*roles: str) -> tuple[Health, Time]:
    clock = Time()
    made = Health(clock)
    made.expect(roles)
    return made, clock


def turn(made: Health, clock: Time, seconds: float, **report: object) -> None:
    """Report once a second."""
    for _ in range(int(seconds)):
        clock.now_s += 1.0
        made.take("a", report)


def test_a_role_is_ready_once_it_has_reported() -> None:
    made, clock = health("a", "b")
    assert made.ready() == {"a": "it has not begun", "b": "it has not begun"}
    made.take("a", {"moved": 1})
    assert made.ready() == {"b": "it has not begun"}
    made.take("b", {"moved": 0})
    assert made.ready() == {}
    assert set(made.reports()) == {"a", "b"}
    clock.now_s += FRESH_S + 1
    assert made.ready()["a"].startswith("no report for")
    assert made.alive() == {}


def test_life_without_progress_is_not_ready() -> None:
    made, clock = health("a")
    turn(made, clock, PATIENCE_S - 1, moved=0, work=5)
    assert made.ready() == {}
    turn(made, clock, 2, moved=0, work=5, trouble="the folder is away")
    assert made.ready() == {"a": f"no progress for {PATIENCE_S + 1:.0f} s: the folder is away"}
    assert made.alive() == {}
    turn(made, clock, 1, moved=1, work=4)
    assert made.ready() == {}


def test_without_work_or_with_a_reason_to_wait_it_is_ready() -> None:
    made, clock = health("a")
    turn(made, clock, 3 * PATIENCE_S, moved=0, work=0)
    assert made.ready() == {}
    turn(made, clock, 3 * PATIENCE_S, moved=0, work=7, waits=True)
    assert made.ready() == {}


def test_a_role_that_says_nothing_for_long_hangs() -> None:
    made, clock = health("a")
    clock.now_s += DEAD_S - 1
    assert made.alive() == {}, "a first start may take long"
    clock.now_s += 2
    assert set(made.alive()) == {"a"}
    made.take("a", {})
    assert made.alive() == {}


def test_roles_that_are_not_wanted_any_more_are_forgotten() -> None:
    made, clock = health("a", "train x.v1")
    turn(made, clock, 1, moved=1)
    made.expect(["a", "train x.v2"])
    made.take("train x.v1", {"moved": 1})
    assert made.ready() == {"train x.v2": "it has not begun"}
    assert set(made.reports()) == {"a"}


def test_who_stops_is_not_ready_and_lives() -> None:
    made, clock = health("a")
    turn(made, clock, 1, moved=1)
    made.stopping()
    assert made.ready() == {"run": "it is stopping"}
    assert made.alive() == {}
