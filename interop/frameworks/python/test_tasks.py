"""Tests of the common uses of Celery."""

import time

import pytest
from azure.servicebus.exceptions import MessageSizeExceededError
from celery import chain, chord, group

from worker import Worker

TIMEOUT_SECONDS = 240


def outcome(result):
    return result.get(timeout=TIMEOUT_SECONDS)


def test_a_task_has_a_result(shop, worker):
    assert outcome(shop.price.delay(2, each=3)) == 6


def test_many_tasks_each_run_once(shop, worker):
    results = group(shop.price.s(number, 2) for number in range(40))()
    assert outcome(results) == [2 * number for number in range(40)]
    assert all(worker.log.count(f"[{result.id}] received") == 1 for result in results)


def test_a_worker_runs_the_tasks_of_another_queue(shop, environment, tmp_path):
    result = shop.invoice.delay("A1")
    with Worker(tmp_path, environment, "invoices"):
        assert outcome(result) == "invoice of A1"


def test_a_rejected_task_is_retried_after_a_countdown(shop, worker):
    assert outcome(shop.pay.delay("A1", refusals=2)) == {"order": "A1", "attempts": 3}


def test_a_task_fails_when_its_retries_are_exhausted(shop, worker):
    result = shop.pay.apply_async(("A2", 9), {}, countdown=0, retries=3)
    with pytest.raises(ConnectionError, match="the bank refuses order A2"):
        outcome(result)
    assert result.state == "FAILURE"


def test_countdown_delays_a_task(shop, worker):
    begun = time.time()
    assert outcome(shop.remind.apply_async(("A3",), countdown=3)) >= begun + 3


def test_a_failed_task_has_its_error_and_traceback(shop, worker):
    result = shop.refund.delay("A4")
    with pytest.raises(ValueError, match="order A4 was never paid"):
        outcome(result)
    assert result.state == "FAILURE"
    assert "refund" in result.traceback


def test_a_chain_passes_each_result_to_the_next_task(shop, worker):
    assert outcome(chain(shop.price.s(2, 50), shop.with_tax.s())()) == 120


def test_a_chord_passes_all_results_to_its_callback(shop, worker):
    assert outcome(chord([shop.price.s(number, 2) for number in range(5)])(shop.total.s())) == 20


def test_an_argument_of_half_a_mebibyte_is_accepted(shop, worker):
    # kombu sends JSON with the body in base64, so this makes about 700 KB.
    assert outcome(shop.characters.delay("x" * 2**19)) == 2**19


def test_an_argument_that_is_too_large_is_rejected(shop, worker):
    with pytest.raises(MessageSizeExceededError, match="exceeds the limit"):
        shop.characters.delay("x" * 2**20)
    assert outcome(shop.characters.delay("short")) == 5
