"""Processor time as the kernel counts it."""

from __future__ import annotations

import os

import pytest
from processor import main_thread, parse_schedstat, used


def test_a_line_of_schedstat_is_time_used_and_time_waited() -> None:
    assert parse_schedstat("924654 52088 2\n") == (924_654, 52_088)
    with pytest.raises(ValueError, match="not enough values"):
        parse_schedstat("924654\n")


def test_the_time_of_a_process_grows_and_includes_its_main_thread() -> None:
    before = used(os.getpid())
    thread = main_thread(os.getpid()).used_ns
    while main_thread(os.getpid()).used_ns == thread:
        sum(range(10_000))
    spent = used(os.getpid()).since(before)
    assert spent.main_ns > 0
    assert spent.process_ns > 0


def test_a_process_that_has_ended_has_no_times() -> None:
    with pytest.raises(OSError, match=r"."):
        used(2**22 + 1)
