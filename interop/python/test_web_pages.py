"""A web page in a real browser cannot use a broker on the same machine, unless the broker allows its origin."""

import contextlib
import http.server
import json
import queue
import subprocess
import threading

import pytest

from broker import Broker

TIMEOUT_SECONDS = 60
# The page tries what a page can do without knowing a secret, and reports what it could see.
PAGE = """<!doctype html><title>page</title><script>
async function socket(address) {
  return new Promise((done) => {
    const opened = new WebSocket(`ws://${address}/$servicebus/websocket`, ["AMQPWSB10"]);
    opened.onopen = () => done("open");
    opened.onerror = () => done("refused");
  });
}
async function read(url) {
  try { return await (await fetch(url)).text(); } catch (error) { return "unreadable"; }
}
async function loaded(url) {
  return new Promise((done) => {
    const script = document.createElement("script");
    script.onload = () => done("loaded");
    script.onerror = () => done("refused");
    script.src = url;
    document.head.append(script);
  });
}
(async () => {
  const seen = {
    socket: await socket("BROKER"),
    health: await read("http://BROKER/health"),
    script: await loaded("http://BROKER/health"),
  };
  await fetch("/seen", { method: "POST", body: JSON.stringify(seen) });
})();
</script>"""


class Site:
    """Serves the page, and takes its report."""

    def __init__(self, broker):
        self.reports = queue.Queue()
        site = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                body = PAGE.replace("BROKER", broker.address).encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/html")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_POST(self):
                size = int(self.headers["Content-Length"])
                site.reports.put(json.loads(self.rfile.read(size)))
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.origin = f"http://127.0.0.1:{self.server.server_port}"

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()


@contextlib.contextmanager
def chromium(folder, *arguments):
    command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", f"--user-data-dir={folder}"]
    with open(folder / "chromium.log", "ab") as log:
        browser = subprocess.Popen([*command, *arguments], stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            yield browser
        finally:
            browser.kill()
            browser.wait()


def visit(site, folder):
    """Opens the page in a browser and returns its report."""
    folder.mkdir(exist_ok=True)
    with chromium(folder, "--remote-debugging-port=0", site.origin):
        return site.reports.get(timeout=TIMEOUT_SECONDS)


@pytest.fixture
def start(tmp_path):
    brokers = []

    def start(**options):
        folder = tmp_path / f"broker-{len(brokers)}"
        folder.mkdir()
        brokers.append(Broker(folder, **options).start())
        return brokers[-1]

    yield start
    for broker in brokers:
        broker.stop()


def test_a_page_of_another_origin_is_kept_out(start, tmp_path):
    with Site(start()) as site:
        assert visit(site, tmp_path / "browser") == {"socket": "refused", "health": "unreadable", "script": "refused"}


def test_an_allowed_page_can_use_the_broker(start, tmp_path):
    broker = start()
    site = Site(broker)
    broker.stop()
    allowed = start(listen=broker.address, environment={"PEEKLOCK_ALLOW_ORIGIN": site.origin})
    assert allowed.address == broker.address
    with site:
        seen = visit(site, tmp_path / "browser")
    assert seen["socket"] == "open"
    assert json.loads(seen["health"])["status"] == "healthy"


def test_a_name_that_was_made_to_resolve_to_this_machine_is_kept_out(start, tmp_path):
    broker = start()
    port = broker.address.rpartition(":")[2]
    rules = "--host-resolver-rules=MAP rebound.example 127.0.0.1"

    def shown(host):
        folder = tmp_path / host
        folder.mkdir()
        with chromium(folder, rules, "--dump-dom", f"http://{host}:{port}/health") as browser:
            return browser.communicate(timeout=TIMEOUT_SECONDS)[0]

    assert "healthy" in shown("localhost")
    refused = shown("rebound.example")
    assert "--allow-host" in refused and "healthy" not in refused
