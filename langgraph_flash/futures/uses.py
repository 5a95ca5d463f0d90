"""`@uses`: what a tool declares about itself, so that its calls may overlap with others."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeVar, get_args, runtime_checkable

from pydantic import BaseModel, ConfigDict, ValidationError

from langgraph_flash.errors import ConfigurationError, DeclarationError
from langgraph_flash.futures.resources import BARRIER, PURE, Access, Template
from langgraph_flash.futures.timeouts import Timeout

__all__ = ["UNDECLARED", "OnEnd", "Uses", "declared", "uses"]

_ATTRIBUTE = "__flash_uses__"
_METADATA = "flash"

T = TypeVar("T")

OnEnd = Literal["drain", "cancel", "detach"]
"""What becomes of pending futures when the model gives its final answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Uses:
    """A tool's declaration. `reads` and `writes` are `None` for a barrier, which is what an undeclared tool is."""

    reads: tuple[Template, ...] | None = None
    writes: tuple[Template, ...] | None = None
    background: bool | None = None
    """Whether its calls may return futures; `None` leaves it to the node."""
    timeout: Timeout | None = None
    seconds: float | None = None
    """How long a call usually takes, for longest-first dispatch; measured if `None`."""
    on_end: OnEnd | None = None
    """What becomes of a pending call at the model's final answer; `None` leaves it to the node."""

    @property
    def barrier(self) -> bool:
        """Whether calls conflict with every other call that touches anything."""
        return self.reads is None or self.writes is None

    @property
    def fields(self) -> frozenset[str]:
        """Names of the arguments that the templates mention."""
        return frozenset().union(*(template.fields for template in (self.reads or ()) + (self.writes or ())))

    def access(self, arguments: Mapping[str, object], unknown: frozenset[str] = frozenset()) -> Access:
        """The paths a call with these arguments touches; `unknown` names those that are still futures."""
        if self.reads is None or self.writes is None:
            return BARRIER
        if not self.reads and not self.writes:
            return PURE
        return Access(
            reads=tuple(template.resolve(arguments, unknown) for template in self.reads),
            writes=tuple(template.resolve(arguments, unknown) for template in self.writes),
        )

    def check(self, tool: str, arguments: Iterable[str]) -> None:
        """Refuse templates over arguments that the tool does not have.

        Raises:
            DeclarationError: A field names no argument of the tool.
        """
        allowed = sorted(arguments)
        if missing := sorted(self.fields - set(allowed)):
            raise DeclarationError(
                tool,
                f"its resource templates mention {', '.join(map(repr, missing))}, which the model does not pass",
                f"Use its own arguments: {', '.join(map(repr, allowed)) or 'it has none'}.",
            )


UNDECLARED = Uses()
"""What a tool without `@uses` is taken for: a barrier."""


class _Declaration(BaseModel):
    """The JSON form kept in `tool.metadata["flash"]`."""

    model_config = ConfigDict(extra="forbid", strict=True)

    reads: list[str] | None = None
    writes: list[str] | None = None
    background: bool | None = None
    timeout: float | None = None
    idle: float | None = None
    seconds: float | None = None
    on_end: OnEnd | None = None


@runtime_checkable
class _ToolObject(Protocol):
    name: str
    metadata: dict[str, Any] | None

    @property
    def args(self) -> dict[str, Any]: ...

    def model_copy(self, *, update: Mapping[str, Any] | None = None) -> Any: ...


def _templates(kind: str, given: str | Iterable[str] | None) -> tuple[Template, ...]:
    if given is None:
        return ()
    if isinstance(given, str):
        return (Template.parse(given),)
    try:
        items = list(given)
    except TypeError:
        raise ConfigurationError(f"{kind}={given!r} is not a resource path or a list of them.") from None
    return tuple(Template.parse(item) for item in items)


def uses(
    *,
    reads: str | Iterable[str] | None = None,
    writes: str | Iterable[str] | None = None,
    pure: bool = False,
    barrier: bool = False,
    background: bool | None = None,
    timeout: Timeout | float | None = None,
    seconds: float | None = None,
    on_end: OnEnd | None = None,
) -> Callable[[T], T]:
    """Declare what a tool reads and writes, so that calls which touch different things may overlap.

    Decorates a plain function (under or without `@tool`) or a tool object, of which it returns a declared copy. A
    declaration opts the tool in to futures. State that hides inside a tool counts: a seeded random generator, a
    cache that a getter fills, a login. A write covers a read of the same path.

    Args:
        reads: Paths it reads, such as `"calendar/{user}"`; `{user}` is filled from the call's arguments.
        writes: Paths it changes.
        pure: It touches nothing that another call could change.
        barrier: It touches everything (what an undeclared tool is taken for); useful with `background=True`.
        background: `False` keeps the tool in the foreground (for tools that ask a person, hand over, or end the
            run); `True` lets it return futures; by default a declared tool does.
        timeout: Seconds a call may run, or a `Timeout`.
        seconds: How long a call usually takes, for `dispatch="longest"`.
        on_end: What becomes of a pending call when the model gives its final answer: `"drain"` waits for the result
            and gives the model another turn, `"detach"` appends it silently at the next boundary, `"cancel"` stops it.
            By default what the node says.

    Raises:
        ConfigurationError: The arguments contradict each other, or a path is malformed.
        DeclarationError: A template names an argument that the tool does not have.
    """
    if pure and (barrier or reads is not None or writes is not None):
        raise ConfigurationError("pure=True says that the tool touches nothing; leave reads, writes and barrier out.")
    if barrier and (reads is not None or writes is not None):
        raise ConfigurationError("barrier=True says that the tool touches everything; leave reads and writes out.")
    if background is not None and not isinstance(background, bool):
        raise ConfigurationError(f"background={background!r} is not True, False or None.")
    if seconds is not None and not _is_duration(seconds):
        raise ConfigurationError(f"seconds={seconds!r} is not a duration; give a number of at least 0.")
    if on_end is not None and on_end not in get_args(OnEnd):
        raise ConfigurationError(f"on_end={on_end!r} is not one of {', '.join(map(repr, get_args(OnEnd)))}.")
    undeclared = barrier or not (pure or reads is not None or writes is not None)
    declaration = Uses(
        reads=None if undeclared else _templates("reads", reads),
        writes=None if undeclared else _templates("writes", writes),
        background=background,
        timeout=None if timeout is None else Timeout.coerce(timeout),
        seconds=seconds,
        on_end=on_end,
    )

    def declare(target: T) -> T:
        if isinstance(target, _ToolObject):
            declaration.check(target.name, target.args)
            metadata = {**(target.metadata or {}), _METADATA: _dump(declaration)}
            copied: T = target.model_copy(update={"metadata": metadata})
            return copied
        if not callable(target):
            raise ConfigurationError(f"@uses decorates a function or a tool, not {target!r}.")
        parameters = inspect.signature(target).parameters.values()
        if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
            declaration.check(getattr(target, "__name__", repr(target)), (parameter.name for parameter in parameters))
        try:
            setattr(target, _ATTRIBUTE, declaration)
        except AttributeError:
            raise ConfigurationError(
                f"@uses cannot attach a declaration to {target!r}. Make it a tool first, and declare that: "
                "uses(...)(tool(...))."
            ) from None
        return target

    return declare


def _is_duration(seconds: object) -> bool:
    return isinstance(seconds, (int, float)) and not isinstance(seconds, bool) and seconds >= 0


def _dump(declaration: Uses) -> dict[str, Any]:
    timeout = declaration.timeout or Timeout()
    return _Declaration(
        reads=None if declaration.reads is None else [template.text for template in declaration.reads],
        writes=None if declaration.writes is None else [template.text for template in declaration.writes],
        background=declaration.background,
        timeout=timeout.total,
        idle=timeout.idle,
        seconds=declaration.seconds,
        on_end=declaration.on_end,
    ).model_dump(exclude_none=True)


def _methods(tool: object) -> tuple[object, object]:
    """What a tool class may have declared on the methods that do its work."""
    return getattr(type(tool), "_run", None), getattr(type(tool), "_arun", None)


def _load(data: _Declaration) -> Uses:
    """The declaration in a validated record.

    Raises:
        ConfigurationError: A path, limit or duration in it is malformed.
    """
    if data.seconds is not None and not _is_duration(data.seconds):
        raise ConfigurationError(f"seconds={data.seconds!r} is not a duration")
    timeout = Timeout(data.timeout, idle=data.idle)
    undeclared = data.reads is None and data.writes is None
    return Uses(
        reads=None if undeclared else _templates("reads", data.reads),
        writes=None if undeclared else _templates("writes", data.writes),
        background=data.background,
        timeout=None if timeout == Timeout() else timeout,
        seconds=data.seconds,
        on_end=data.on_end,
    )


def declared(tool: object) -> Uses | None:
    """The declaration of a tool object or function, or `None` if it has none.

    Raises:
        DeclarationError: `tool.metadata["flash"]` is not a declaration.
    """
    metadata = getattr(tool, "metadata", None)
    if isinstance(metadata, Mapping) and _METADATA in metadata:
        name = str(getattr(tool, "name", tool))
        try:
            return _load(_Declaration.model_validate(metadata[_METADATA]))
        except (ValidationError, ConfigurationError) as error:
            first = error.errors()[0] if isinstance(error, ValidationError) else None
            problem = str(error) if first is None else f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
            raise DeclarationError(
                name,
                f'metadata["flash"] is not a declaration ({problem})',
                "Write it with @uses(...), or use the keys reads, writes, background, timeout, idle, seconds, on_end.",
            ) from error
    for candidate in (tool, getattr(tool, "func", None), getattr(tool, "coroutine", None), *_methods(tool)):
        found = getattr(candidate, _ATTRIBUTE, None)
        if isinstance(found, Uses):
            return found
    return None
