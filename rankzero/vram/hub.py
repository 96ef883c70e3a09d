"""Fetches a model's ``config.json`` from the Hugging Face hub, if there is a network."""

from __future__ import annotations

import json
import os
import re
import urllib.error
import urllib.request
from typing import Any

_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
_MOST_BYTES = 1_000_000


def is_hub_id(name: str) -> bool:
    """Whether the name has the form ``organisation/name``."""
    return _ID.fullmatch(name) is not None


def fetch_config(name: str, timeout: float = 10.0) -> dict[str, Any]:
    """The ``config.json`` of a hub model. ``HF_ENDPOINT`` and ``HF_TOKEN`` are honoured, as by the hub's own client.

    Raises:
        ValueError: there is no network, no such model, or it needs a token.
    """
    endpoint = os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")
    request = urllib.request.Request(f"{endpoint}/{name}/resolve/main/config.json")
    token = os.environ.get("HF_TOKEN")
    if token:
        request.add_unredirected_header("Authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            config = json.loads(answer.read(_MOST_BYTES))
    except urllib.error.HTTPError as error:
        if error.code in (401, 403):
            raise ValueError(
                f"MODEL: the hub does not show {name} without permission; if it is gated, accept its terms there and "
                "set HF_TOKEN, and if it does not exist, check the name"
            ) from None
        raise ValueError(f"MODEL: the hub has no config.json for {name} (status {error.code})") from None
    except OSError:
        raise ValueError(
            f"MODEL: {name} looks like a hub id, but {endpoint} cannot be reached; "
            "give a config.json or a built-in name"
        ) from None
    except ValueError:
        raise ValueError(f"MODEL: what the hub sent for {name} is not JSON") from None
    if not isinstance(config, dict):
        raise ValueError(f"MODEL: what the hub sent for {name} is not an object of settings")
    return config
