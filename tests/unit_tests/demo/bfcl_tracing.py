"""A tracer that records which attributes a method reads and writes, in-place changes included."""

from __future__ import annotations

from langgraph_flash.demo.bfcl.oracle import canonical

# Never assigned after the start, by anything: reading them orders nothing.
CONSTANTS = frozenset({"_api_description", "long_context"})

# The file system is declared as two resources, not by attribute.
RESOURCES = {"_current_dir": "cwd", "root": "tree"}

_MUTATORS = {
    dict: "__setitem__ __delitem__ __ior__ clear pop popitem setdefault update",
    list: "__setitem__ __delitem__ __iadd__ __imul__ append clear extend insert pop remove reverse sort",
    set: "__iand__ __ior__ __isub__ __ixor__ add clear discard pop remove update difference_update "
    "intersection_update symmetric_difference_update",
}


def _recording(base):
    def mutator(name):
        plain = getattr(base, name)

        def record(self, *args, **kwargs):
            self.tracer.writes.add(self.resource)
            return plain(self, *args, **kwargs)

        return record

    body = {name: mutator(name) for name in _MUTATORS[base].split()}
    return type(f"Recording{base.__name__.title()}", (base,), body)


_RECORDING = {base: _recording(base) for base in _MUTATORS}


class Tracer:
    """Records on one instance; `begin` before a call, `end` after it."""

    def __init__(self, instance):
        self.instance = instance
        self.reads = set()
        self.writes = set()
        self._nodes = {}
        plain = type(instance)
        instance.__class__ = self._subclass(plain, lambda name: RESOURCES.get(name, name))

    def _subclass(self, plain, resource):
        tracer = self

        class Recorded(plain):
            __eq__ = plain.__eq__
            __hash__ = None

            def __getattribute__(self, name):
                value = object.__getattribute__(self, name)
                if name in object.__getattribute__(self, "__dict__"):
                    tracer.reads.add(resource(name))
                return value

            def __setattr__(self, name, value):
                tracer.writes.add(resource(name))
                object.__setattr__(self, name, value)

            def __delattr__(self, name):
                tracer.writes.add(resource(name))
                object.__delattr__(self, name)

        Recorded.__name__ = plain.__name__
        return Recorded

    def _wrap(self, value, resource, memo):
        """Replace containers by recording ones, and file tree nodes' class by a recording one."""
        if id(value) in memo:
            return memo[id(value)][1]
        for base, recording in _RECORDING.items():
            if type(value) in (base, recording):
                if base is dict:
                    wrapped = recording({key: self._wrap(item, resource, memo) for key, item in value.items()})
                elif base is list:
                    wrapped = recording([self._wrap(item, resource, memo) for item in value])
                else:
                    wrapped = recording(value)
                wrapped.tracer, wrapped.resource = self, resource
                memo[id(value)] = (value, wrapped)  # with the original, which keeps its id from being reused
                return wrapped
        if type(value).__name__ in ("File", "Directory"):
            memo[id(value)] = (value, value)
            plain = type(value)
            if plain.__module__.startswith("bfcl_eval"):
                recorded = self._nodes.setdefault(plain, self._subclass(plain, lambda _: "tree"))
                object.__setattr__(value, "__class__", recorded)
            attributes = object.__getattribute__(value, "__dict__")
            for name, item in list(attributes.items()):
                attributes[name] = self._wrap(item, "tree", memo)
        return value

    def begin(self):
        attributes = object.__getattribute__(self.instance, "__dict__")
        memo = {}
        for name, value in list(attributes.items()):
            attributes[name] = self._wrap(value, RESOURCES.get(name, name), memo)
        self._before = canonical(self.instance)
        self.reads.clear()
        self.writes.clear()

    def end(self):
        """The resources read and written since `begin`."""
        reads, writes = set(self.reads), set(self.writes)
        after = canonical(self.instance)
        changed = {RESOURCES.get(n, n) for n in {*after, *self._before} if after.get(n) != self._before.get(n)}
        # What changed without being caught in the act: the state of a random generator, mostly.
        return reads - CONSTANTS, writes | (changed - writes)
