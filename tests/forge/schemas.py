# SPDX-License-Identifier: Apache-2.0
"""Validate requests and answers against the schemas of an OpenAPI document."""

from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

from openapi_core import Config, OpenAPI
from openapi_core.exceptions import OpenAPIError
from openapi_core.testing import MockRequest, MockResponse

_HOST = "https://api.github.com"


class Schemas:
    """The schemas of a document that is taken to be valid itself."""

    def __init__(self, document: dict[str, Any]) -> None:
        self._api = OpenAPI.from_dict(document, config=Config(spec_validator_cls=None))

    def fault_of_request(self, method: str, target: str, body: bytes) -> str:
        """Validate a request and return the reasons against it, empty if it is valid."""
        return _fault(lambda: self._api.validate_request(_request(method, target, body)))

    def fault_of_answer(self, method: str, target: str, status: int, body: bytes) -> str:
        """Validate the answer to a request and return the reasons against it, empty if it is valid."""
        answer = MockResponse(body, status_code=status)
        return _fault(lambda: self._api.validate_response(_request(method, target, b""), answer))


def _request(method: str, target: str, body: bytes) -> MockRequest:
    parts = urlsplit(target)
    query = {name: values[0] if len(values) == 1 else values for name, values in parse_qs(parts.query).items()}
    return MockRequest(_HOST, method.lower(), parts.path, args=query, data=body or None)


def _fault(check: Callable[[], object]) -> str:
    try:
        check()
    except OpenAPIError as error:
        reasons = getattr(error.__cause__, "schema_errors", None) or [error.__cause__ or error]
        places = [f"{'.'.join(map(str, getattr(one, 'absolute_path', ())))} {getattr(one, 'message', one)}" for one in reasons]
        return f"{error}"[:200] + ": " + "; ".join(places)[:2000]
    return ""
