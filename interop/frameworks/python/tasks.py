"""Background work of a shop, written with Celery. Run a worker: celery --app tasks worker"""

import os
import pathlib
import time

from celery import Celery

app = Celery("tasks")
app.conf.update(
    broker_url=os.environ["BROKER_URL"],
    result_backend=os.environ["RESULT_BACKEND"],
    broker_connection_retry_on_startup=True,
    # Service Bus has no fanout for kombu, so `celery inspect` and `celery control` would reach no worker.
    worker_enable_remote_control=False,
    broker_transport_options={
        "wait_time_seconds": 1,
        "peek_lock_seconds": int(os.environ.get("PEEK_LOCK_SECONDS", "60")),
        "use_lock_renewal": os.environ.get("USE_LOCK_RENEWAL") == "1",
    },
    task_routes={"tasks.invoice": {"queue": "invoices"}},
)


@app.task
def price(amount, each):
    return amount * each


@app.task
def with_tax(net, percent=20):
    return net * (100 + percent) // 100


@app.task
def total(prices):
    return sum(prices)


@app.task(bind=True, max_retries=3)
def pay(self, order, refusals):
    """Calls a payment service that rejects the first attempts."""
    if self.request.retries < refusals:
        raise self.retry(countdown=1, exc=ConnectionError(f"the bank refuses order {order}"))
    return {"order": order, "attempts": self.request.retries + 1}


@app.task
def refund(order):
    raise ValueError(f"order {order} was never paid")


@app.task
def remind(order):
    return time.time()


@app.task
def invoice(order):
    return f"invoice of {order}"


@app.task
def characters(text):
    return len(text)


@app.task(acks_late=True)
def pack(folder):
    """Records each attempt. The first one lasts until a test creates the file 'done'."""
    folder = pathlib.Path(folder)
    with open(folder / "attempts", "a") as attempts:
        attempts.write(f"{os.getpid()}\n")
    if len(attempts_in(folder)) == 1:
        while not (folder / "done").exists():
            time.sleep(0.1)
    return len(attempts_in(folder))


@app.task(acks_late=True)
def ship(folder, seconds):
    """Takes longer than the lock duration of its message."""
    with open(pathlib.Path(folder) / "attempts", "a") as attempts:
        attempts.write(f"{os.getpid()}\n")
    time.sleep(seconds)
    return len(attempts_in(folder))


def attempts_in(folder):
    note = pathlib.Path(folder) / "attempts"
    return note.read_text().splitlines() if note.exists() else []
