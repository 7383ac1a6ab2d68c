"""ASGI middleware: only pages of this server on loopback may talk to it, with requests of bounded size."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import urlsplit

from waycode.studio.messages import Problem

_Scope = MutableMapping[str, Any]
_Message = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[_Message]]
_Send = Callable[[_Message], Awaitable[None]]
_App = Callable[[_Scope, _Receive, _Send], Awaitable[None]]

LOOPBACK_HOSTS = frozenset({"127.0.0.1", "localhost", "::1"})
_POLICY = (
    "default-src 'self'; img-src 'self' data: blob:; object-src 'none'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
_HEADERS = (
    (b"content-security-policy", _POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)


class TooLargeError(Exception):
    """The body of a request exceeds the limit."""


class Protection:
    """Checks Host and Origin, bounds the body, and adds headers that forbid everything from outside.

    The Host check stops pages that point their own name at 127.0.0.1 (DNS rebinding); the Origin check stops requests
    and sockets that other pages of the same browser open.
    """

    def __init__(self, app: _App, *, max_request_bytes: int):
        self.app, self.max_request_bytes = app, max_request_bytes

    async def __call__(self, scope: _Scope, receive: _Receive, send: _Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            return await self.app(scope, receive, send)
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        refusal = _refusal(headers)
        if refusal is None and _declared_bytes(headers) > self.max_request_bytes:
            refusal = (413, Problem(kind="too-large", message=self._too_large()))
        if refusal is not None:
            if scope["type"] == "websocket":
                await receive()
                return await send({"type": "websocket.close", "code": 1008, "reason": refusal[1].message[:120]})
            return await _send_problem(send, *refusal)
        received = 0
        is_refused = False

        async def receive_bounded() -> _Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b"")) if message["type"] == "http.request" else 0
            if received > self.max_request_bytes:
                raise TooLargeError
            return message

        async def send_with_headers(message: _Message) -> None:
            nonlocal is_refused
            if message["type"] == "http.response.start":
                # The application may answer in its own way to a body that broke off: the reason is its size.
                is_refused = received > self.max_request_bytes
                if is_refused:
                    await _send_problem(send, 413, Problem(kind="too-large", message=self._too_large()))
                message = {**message, "headers": [*message["headers"], *_HEADERS]}
            if not is_refused:
                await send(message)

        return await self.app(scope, receive_bounded, send_with_headers)

    def _too_large(self) -> str:
        return f"the request is too large, expected at most {self.max_request_bytes} bytes"


def _refusal(headers: dict[str, str]) -> tuple[int, Problem] | None:
    host, origin = headers.get("host", ""), headers.get("origin")
    if _host_name(host) not in LOOPBACK_HOSTS:
        expected = ", ".join(sorted(LOOPBACK_HOSTS))
        return 403, Problem(kind="forbidden", message=f"the Host is {host!r:.80}, expected one of {expected}")
    if origin is not None and urlsplit(origin).netloc != host:
        return 403, Problem(kind="forbidden", message=f"the Origin is {origin!r:.80}, expected the page of this server")
    return None


def _host_name(host: str) -> str | None:
    try:
        return urlsplit(f"//{host}").hostname
    except ValueError:
        return None


def _declared_bytes(headers: dict[str, str]) -> int:
    length = headers.get("content-length", "0")
    return int(length) if length.isascii() and length.isdigit() else 0


async def _send_problem(send: _Send, status: int, problem: Problem) -> None:
    body = problem.model_dump_json().encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), *_HEADERS]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
