"""A `celery worker` in its own process. It logs to a file, so that tests can wait for log lines."""

import os
import pathlib
import signal
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).parent
STOP_TIMEOUT_SECONDS = 120


class Worker:
    def __init__(self, folder, environment, queues="celery", **settings):
        self.log_path = folder / f"worker-{queues}.log"
        arguments = ["--loglevel", "INFO", "--concurrency", "2", "--queues", queues, "--hostname", f"{queues}@%h"]
        command = [sys.executable, "-m", "celery", "--app", "tasks", "worker", *arguments]
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(
                command,
                cwd=HERE,
                env=os.environ | environment | settings,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def __enter__(self):
        return self.wait_for("ready.")

    def __exit__(self, *_):
        self.stop()

    def wait_for(self, text):
        wait_until(lambda: text in self.log or self.has_ended, f"the worker logs '{text}'")
        assert text in self.log, f"the worker ended without '{text}':\n{self.log[-4000:]}"
        return self

    @property
    def log(self):
        return self.log_path.read_text(errors="replace")

    @property
    def has_ended(self):
        return self.process.poll() is not None

    def stop(self):
        """Requests a warm shutdown: Celery finishes the tasks in progress."""
        if self.has_ended:
            return
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(STOP_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise

    def kill(self):
        """Kills the worker during a task. The worker leads a process group, so its pool is killed, too."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def wait_until(condition, what, seconds=240):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"timed out waiting until {what}"
        time.sleep(0.1)
