"""One timer for several waits."""

from __future__ import annotations

from edgedraft.core.edge_alarm import Alarm
from edgedraft.core.events import SetTimer


def test_a_timer_that_was_never_set_is_not_stopped() -> None:
    assert Alarm().commands() == []


def test_it_is_set_for_whatever_comes_first() -> None:
    for silence_s, upload_s, first_s in ((2.0, 1.0, 1.0), (1.0, 2.0, 1.0), (3.0, None, 3.0), (None, 4.0, 4.0)):
        alarm = Alarm()
        alarm.silence_at_s, alarm.upload_at_s = silence_s, upload_s

        assert alarm.commands() == [SetTimer(first_s)]


def test_it_is_stopped_once() -> None:
    alarm = Alarm()
    alarm.upload_at_s = 1.0
    alarm.commands()
    alarm.upload_at_s = None

    assert alarm.commands() == [SetTimer(None)]
    assert alarm.commands() == []


def test_an_alarm_is_for_silence_where_nothing_else_is_due_before() -> None:
    alarm = Alarm()
    assert not alarm.is_for_silence

    alarm.silence_at_s = 2.0
    assert alarm.is_for_silence
    alarm.upload_at_s = 1.0
    assert not alarm.is_for_silence
    alarm.upload_at_s = 2.0
    assert alarm.is_for_silence
