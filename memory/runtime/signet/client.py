"""A client for a Signet daemon. It covers the contract's dependency map with the real field names."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any
from urllib.parse import quote, urlsplit

import anyio
from pydantic import ValidationError

from memory.adapter._bounded import is_loopback, server_address
from memory.contract import errors
from memory.contract._model import JsonObject
from memory.runtime._provider import encodable
from memory.runtime.signet import types

DEFAULT_URL = "http://127.0.0.1:3850"  # the daemon's default address


class AdapterClient(types.RuntimeAdapter, AbstractAsyncContextManager["AdapterClient"]):
    """A client through which a harness calls a daemon.

    Every call raises :class:`BackendError` if the daemon cannot be reached, refuses the call or gives an
    invalid answer.

    Args:
        url: the daemon's address.
        harness: the name of the calling program.
        token: bearer token, for ``https`` and loopback addresses only. No redirect is followed.
        timeout_s: seconds for each call. OpenCode grants a prompt 2 s.

    Raises:
        ConfigError: the address is invalid, ``harness`` is blank, or the token would go out unencrypted.
        PluginLoadError: httpx is not installed.
    """

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        harness: str,
        token: str | None = None,
        timeout_s: float = 10.0,
    ) -> None:
        try:
            from memory.adapter._http import JsonHttp, bearer, none_if_404
        except ImportError as error:
            raise errors.PluginLoadError("the Signet client needs: pip install 'memslot[signet]'") from error
        try:
            self.url = server_address(url, DEFAULT_URL)
        except ValueError as error:
            raise errors.ConfigError(f"daemon_url: {error}") from error
        if not harness.strip():
            raise errors.ConfigError("harness: is blank; name the program that calls")
        parts = urlsplit(self.url)
        if token and parts.scheme != "https" and not is_loopback(parts.hostname or ""):
            raise errors.ConfigError("token: would leave this machine unencrypted; use an https address")
        self.harness = harness
        self._none_if_404 = none_if_404
        self._headers = {
            "x-signet-runtime-path": "plugin",
            "x-signet-actor": harness,
            "x-signet-actor-type": "harness",
            **bearer(token),
        }
        self._timeout_s = timeout_s
        self._http = JsonHttp(
            self.url,
            backend="signet",
            server="daemon",
            timeout_s=timeout_s,
        )

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections. Idempotent."""
        await self._http.aclose()

    async def on_session_start(self, params: types.SessionStartParams) -> types.SessionStartResult:
        """``POST /api/hooks/session-start``"""
        return await self._hook("session-start", params, types.SessionStartResult)

    async def on_user_prompt_submit(self, params: types.PromptSubmitParams) -> types.PromptSubmitResult:
        """``POST /api/hooks/user-prompt-submit``. Raises InputError if ``user_message`` is blank."""
        if not (params.user_message or "").strip():
            raise errors.InputError("PromptSubmitParams.user_message: is blank; the daemon requires it")
        return await self._hook("user-prompt-submit", params, types.PromptSubmitResult)

    async def on_session_end(self, params: types.SessionEndParams) -> types.SessionEndResult:
        """``POST /api/hooks/session-end``. The daemon extracts memories later and does not count them."""
        return await self._hook("session-end", params, types.SessionEndResult)

    async def on_pre_compaction(self, params: types.PreCompactionParams) -> types.PreCompactionResult:
        """``POST /api/hooks/pre-compaction``"""
        return await self._hook("pre-compaction", params, types.PreCompactionResult)

    async def on_compaction_complete(self, params: types.CompactionCompleteParams) -> types.CompactionResult:
        """``POST /api/hooks/compaction-complete``"""
        if not (params.summary or "").strip():
            raise errors.InputError("CompactionCompleteParams.summary: is blank; the daemon requires it")
        return await self._hook("compaction-complete", params, types.CompactionResult)

    async def remember(self, content: str, **fields: object) -> str | None:
        """``POST /api/hooks/remember``. Returns the new memory's id, or None if the daemon does not tell it.

        Args:
            content: the text.
            fields: ``who``, ``project``, ``sessionKey``, ``idempotencyKey``.

        Raises:
            BackendProtocolError: the daemon does not confirm that it saved the memory.
        """
        body = {"harness": self.harness, "content": content, **fields}
        answer = await self._call("POST", "/api/hooks/remember", body)
        found = answer.get("id")
        if answer.get("saved") is not True and not isinstance(found, str):
            raise self._nonsense("/api/hooks/remember", "it does not say whether it was saved")
        return found if isinstance(found, str) else None

    async def recall(self, query: str, **fields: object) -> list[JsonObject]:
        """``POST /api/memory/recall``. Returns the daemon's rows. Only the filter ``who`` isolates users.

        Args:
            query: the text to search for.
            fields: ``limit``, ``type``, ``tags``, ``who``, ``pinned``, ``importance_min``, ``since``, ``until``.
        """
        return await self._rows("POST", "/api/memory/recall", "results", body={"query": query, **fields})

    async def get(self, memory_id: str) -> JsonObject | None:
        """``GET /api/memory/:id``. Returns None if the memory does not exist."""
        row = await self._none_if_404(self._call("GET", f"/api/memory/{quote(memory_id, safe='')}"))
        return None if row is None or row.get("is_deleted") in (1, True) else row

    async def modify(
        self, patches: Sequence[Mapping[str, object]], reason: str | None = None
    ) -> list[JsonObject]:
        """``POST /api/memory/modify``. A failed patch raises no error: check each row's ``status``.

        Args:
            patches: each has ``id``, ``reason``, the changed fields such as ``content``, ``type`` and
                ``tags``, and optionally ``if_version``.
            reason: the reason for patches without one.
        """
        body = {
            "patches": [{"reason": reason, **patch} if reason else dict(patch) for patch in patches],
            "changed_by": self.harness,
        }
        return await self._rows("POST", "/api/memory/modify", "results", body=body)

    async def forget(self, ids: Sequence[str], reason: str, *, force: bool = False) -> list[JsonObject]:
        """``POST /api/memory/forget`` with ``mode: execute``. The daemon's default mode is a preview.

        Each row's ``status`` tells its outcome. Pinned memories require ``force``.
        """
        body = {"ids": list(ids), "mode": "execute", "reason": reason, "force": force}
        return await self._rows("POST", "/api/memory/forget", "results", body=body)

    async def run_with_secrets(self, command: str, secrets: Mapping[str, str]) -> JsonObject:
        """``POST /api/secrets/exec``: run a command on the daemon's machine.

        Returns ``{stdout, stderr, code}``. A later daemon answers with a job, and this returns the job.

        Args:
            command: a command for the daemon's shell.
            secrets: name of an environment variable -> name of its secret.
        """
        return await self._call("POST", "/api/secrets/exec", {"command": command, "secrets": dict(secrets)})

    async def health(self) -> JsonObject:
        """``GET /health``"""
        return await self._call("GET", "/health")

    async def _hook(self, name: str, params: types.SessionParams, result: type[types.WireT]) -> types.WireT:
        body = {"harness": self.harness, **params.to_wire()}
        try:
            return result.model_validate(await self._call("POST", f"/api/hooks/{name}", body))
        except ValidationError as error:
            raise self._nonsense(name, f"{error.error_count()} of its fields have the wrong type") from None

    async def _call(
        self,
        method: str,
        path: str,
        body: Mapping[str, object] | None = None,
        params: Mapping[str, object] | None = None,
    ) -> JsonObject:
        found: object = None
        with anyio.move_on_after(self._timeout_s) as limit:
            found = await self._http.request(method, path, json=body, params=params, headers=self._headers)
        if limit.cancelled_caught:
            late = f"signet: no whole answer within {self._timeout_s:g} s"
            raise errors.BackendTimeout(late, backend_name="signet", operation=method)
        if not isinstance(found, dict):
            raise self._nonsense(method, "it is no JSON object")
        # A daemon that cuts a text may leave half of a surrogate pair.
        return dict(json.loads(encodable(json.dumps(found, ensure_ascii=False))))

    async def _rows(self, method: str, path: str, name: str, **sent: Any) -> list[JsonObject]:
        rows = (await self._call(method, path, **sent)).get(name)
        if not isinstance(rows, list):
            raise self._nonsense(path, f"it has no list {name!r}")
        return [row for row in rows if isinstance(row, dict)]

    @staticmethod
    def _nonsense(operation: str, what: str) -> errors.BackendProtocolError:
        message = f"signet: the answer cannot be used: {what}"
        return errors.BackendProtocolError(message, backend_name="signet", operation=operation)


def create_adapter(harness: str, daemon_url: str | None = None, *, token: str | None = None) -> AdapterClient:
    """Create a client, with the name and arguments of Signet's contract. Errors as for
    :class:`AdapterClient`.

    Args:
        harness: the name of the calling program.
        daemon_url: the daemon's address; None selects the daemon of this machine.
        token: the bearer token, if the daemon requires one.
    """
    return AdapterClient(DEFAULT_URL if daemon_url is None else daemon_url, harness=harness, token=token)
