"""Shared access signatures, created as in the documentation of the service."""

import base64
import hashlib
import hmac
import urllib.parse


def signature(resource, key_name, key, expiry):
    resource = urllib.parse.quote_plus(resource)
    digest = hmac.new(key.encode(), f"{resource}\n{expiry}".encode(), hashlib.sha256).digest()
    proof = urllib.parse.quote_plus(base64.b64encode(digest))
    return f"SharedAccessSignature sr={resource}&sig={proof}&se={expiry}&skn={key_name}"
