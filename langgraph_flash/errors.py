"""The family of errors: each class is a situation the caller can act on.

    FlashError
    ├── ConfigurationError (ValueError)      an argument can never work; nothing has run yet
    │   ├── DeclarationError                 a tool's declaration contradicts the tool
    │   └── ResourceError                    a resource path or template is malformed
    ├── MissingDependencyError (ImportError) an optional package is not installed
    ├── LocalServerError                     the embedded model server did not come up
    ├── RuntimeClosed                        a future runtime was used after it was closed
    ├── DeadlockError                        a call would wait for the thread it runs on
    └── FutureError                          something about one future
        ├── UnknownFuture (KeyError)         no such future in this thread
        ├── FutureDelivered                  its value is already in the conversation
        ├── ProjectionError (ValueError)     a projection is malformed or finds nothing
        ├── FutureNotFinished                its outcome was asked for too early
        ├── FutureFailed                     its tool failed
        │   └── ToolTimeout (TimeoutError)   ... because it ran out of time
        └── FutureCancelled                  it was cancelled, or something it depends on failed

A class is raised with facts and writes the sentence itself: what was given, what is allowed, what to do.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

__all__ = [
    "ConfigurationError",
    "DeadlockError",
    "DeclarationError",
    "FlashError",
    "FutureCancelled",
    "FutureDelivered",
    "FutureError",
    "FutureFailed",
    "FutureNotFinished",
    "LocalServerError",
    "MissingDependencyError",
    "ProjectionError",
    "ResourceError",
    "RuntimeClosed",
    "ToolTimeout",
    "UnknownFuture",
]


class FlashError(Exception):
    """Base of every error this package raises on purpose; it can be copied and sent to another process."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Rebuild from the sentence and the facts: the constructor takes the facts alone."""
        return _rebuild, (type(self), self.args, self.__dict__)


def _rebuild(kind: type[FlashError], args: tuple[Any, ...], facts: dict[str, Any]) -> FlashError:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(facts)
    return error


class ConfigurationError(FlashError, ValueError):
    """An argument can never work; raised where it was given, before anything runs."""


class DeclarationError(ConfigurationError):
    """What was declared about a tool contradicts the tool."""

    def __init__(self, tool: str, problem: str, remedy: str) -> None:
        self.tool = tool
        super().__init__(f"Tool {tool!r}: {problem}. {remedy}")


class ResourceError(ConfigurationError):
    """A resource path or template is malformed."""

    def __init__(self, given: object, problem: str) -> None:
        self.given = given
        super().__init__(
            f"Resource {given!r} {problem}. A resource is a slash path such as 'calendar/alice', a template over "
            "the call's arguments such as 'calendar/{user}', or '*' for everything."
        )


class MissingDependencyError(FlashError, ImportError):
    """An optional package is not installed; the message carries the line that installs it."""

    def __init__(self, what: str, package: str, install: str) -> None:
        self.package = package
        super().__init__(f"{what} needs the package {package!r}, which is not installed. Run: {install}")


class LocalServerError(FlashError):
    """The embedded model server could not start, or stopped answering."""


class RuntimeClosed(FlashError):
    """A future runtime was used after it was closed."""

    def __init__(self) -> None:
        super().__init__("This FutureRuntime has been closed, and nothing more will run on it. Make a new one.")


class DeadlockError(FlashError):
    """A call would block the very thread that has to do the work it waits for."""


class FutureError(FlashError):
    """Base of the errors about one future; `future_id` says which."""

    def __init__(self, future_id: str, message: str) -> None:
        self.future_id = future_id
        super().__init__(message)


def _listing(ids: Iterable[str]) -> str:
    return ", ".join(ids) or "none"


class UnknownFuture(FutureError, KeyError):
    """No future of this id exists in this thread."""

    def __init__(self, future_id: str, pending: Iterable[str]) -> None:
        self.pending = tuple(pending)
        super().__init__(
            future_id,
            f"There is no future {future_id!r} in this conversation. Pending futures: {_listing(self.pending)}. "
            "Use one of these ids, or pass the value itself.",
        )

    def __str__(self) -> str:
        """The sentence, not `KeyError`'s quoted form of it."""
        return str(self.args[0])


class FutureDelivered(FutureError):
    """The value is already in the conversation, so its id is no longer accepted."""

    def __init__(self, future_id: str, pending: Iterable[str]) -> None:
        self.pending = tuple(pending)
        super().__init__(
            future_id,
            f"The result of {future_id!r} was already delivered in an earlier message. Pass that value itself. "
            f"Pending futures: {_listing(self.pending)}.",
        )


class ProjectionError(FutureError, ValueError):
    """A projection such as `fut_….items[0].id` is malformed, or finds nothing in the value."""

    def __init__(self, reference: str, future_id: str, problem: str) -> None:
        self.reference = reference
        super().__init__(
            future_id,
            f"The reference {reference!r} {problem}. Write the future's id, optionally followed by fields and "
            "indices of its JSON result, such as 'ID.items[0].id'.",
        )


class FutureNotFinished(FutureError):
    """The outcome was asked for while the call was still waiting or running."""

    def __init__(self, future_id: str, state: str) -> None:
        self.state = state
        super().__init__(future_id, f"Future {future_id!r} is {state}; wait for it before asking for its result.")


class FutureFailed(FutureError):
    """The tool behind the future failed; `__cause__` is what it raised, where it raised."""

    def __init__(self, future_id: str, tool: str, reason: str) -> None:
        self.tool = tool
        self.reason = reason
        super().__init__(future_id, f"Tool {tool!r} ({future_id}) failed: {reason}")


class ToolTimeout(FutureFailed, TimeoutError):
    """The tool ran longer than its timeout allows."""

    def __init__(self, future_id: str, tool: str, limit: str) -> None:
        super().__init__(future_id, tool, f"timed out: {limit}")


class FutureCancelled(FutureError):
    """The call was cancelled before it finished."""

    def __init__(self, future_id: str, reason: str) -> None:
        self.reason = reason
        super().__init__(future_id, f"Future {future_id!r} was cancelled: {reason}")
