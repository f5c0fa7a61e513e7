"""Tests of tasks that are acknowledged late, and of workers that end before."""

from worker import Worker, wait_until

TIMEOUT_SECONDS = 240


def left_in(shop, queue):
    with shop.app.connection_for_read() as connection:
        return connection.default_channel.queue_declare(queue, passive=True).message_count


def test_a_killed_worker_loses_no_task(shop, environment, tmp_path):
    first = Worker(tmp_path, environment, "packing", PEEK_LOCK_SECONDS="5").wait_for("ready.")
    try:
        result = shop.pack.apply_async((str(tmp_path),), queue="packing")
        wait_until(lambda: shop.attempts_in(tmp_path), "the task has begun")
    finally:
        first.kill()
    assert left_in(shop, "packing") == 1
    with Worker(tmp_path, environment, "packing", PEEK_LOCK_SECONDS="5"):
        assert result.get(timeout=TIMEOUT_SECONDS) >= 2
        wait_until(lambda: left_in(shop, "packing") == 0, "the task is acknowledged")


def test_a_task_that_exceeds_its_lock_runs_again(shop, environment, tmp_path):
    with Worker(tmp_path, environment, "outliving", PEEK_LOCK_SECONDS="5"):
        result = shop.pack.apply_async((str(tmp_path),), queue="outliving")
        wait_until(lambda: len(shop.attempts_in(tmp_path)) >= 2, "the task has begun again")
        (tmp_path / "done").touch()
        assert result.get(timeout=TIMEOUT_SECONDS) >= 2
        wait_until(lambda: left_in(shop, "outliving") == 0, "the task is acknowledged")


def test_with_lock_renewal_a_long_task_runs_once(shop, environment, tmp_path):
    with Worker(tmp_path, environment, "shipping", PEEK_LOCK_SECONDS="12", USE_LOCK_RENEWAL="1"):
        result = shop.ship.apply_async((str(tmp_path), 15), queue="shipping")
        assert result.get(timeout=TIMEOUT_SECONDS) == 1
        wait_until(lambda: left_in(shop, "shipping") == 0, "the task is acknowledged")
    assert len(shop.attempts_in(tmp_path)) == 1
