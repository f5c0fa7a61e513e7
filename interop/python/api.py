"""A client for the broker's JSON API."""

import time
import urllib.parse

import requests

from broker import KEY, KEY_NAME
from signature import signature

TIMEOUT_SECONDS = 30


class ApiError(Exception):
    """An error response of the broker."""

    def __init__(self, status, error):
        super().__init__(f"{status} {error['code']}: {error['message']}")
        self.status = status
        self.code = error["code"]
        self.message = error["message"]


class Api:
    def __init__(self, broker, key_name=KEY_NAME, key=KEY, host=None):
        self.broker = broker
        self.headers = {"Host": host} if host else {}
        self.key_name, self.key = key_name, key

    def get(self, *path, **query):
        return self.ask("GET", path, query).json()

    def put(self, *path, **body):
        return self.ask("PUT", path, json=body).json()

    def post(self, *path, **body):
        return self.ask("POST", path, json=body).json()

    def delete(self, *path):
        self.ask("DELETE", path)

    def ask(self, method, path, query=None, token=None, **options):
        """Sends a request. A path segment may contain any character, since each segment is escaped separately."""
        place = "/".join(urllib.parse.quote(segment, safe="") for segment in path)
        # Read for each request, because the address changes when the broker restarts.
        root = f"http://{self.broker.address}"
        token = token or signature(root, self.key_name, self.key, int(time.time()) + 600)
        headers = {"Authorization": token} | self.headers
        response = requests.request(method, f"{root}/api/{place}", params=query, headers=headers, timeout=TIMEOUT_SECONDS, **options)
        if not response.ok:
            raise ApiError(response.status_code, response.json()["error"])
        return response
