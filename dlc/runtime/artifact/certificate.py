"""The certificate: the memory plan that an artifact carries, to be checked without the planner.

It gives each value its offset in the arena and its lifetime in waves (`dlc.runtime.abi`), in the order of
the step table. Sizes are expressions of `dlc.runtime.artifact.size_expressions`; `$k` is entry k of the
program's list of sizes. `dlc.runtime.artifact.plan_check` trusts none of it.
"""

# Without deferred annotations: the schema reads the classes as they are, at every load.
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from dlc.runtime.artifact import canonical_json, schema, size_expressions
from dlc.runtime.artifact.plan import Extent, Plan, Span


class RootRecord(NamedTuple):
    """A root: a block of the arena, live from its first to its last wave, both included.

    It lies in the part of the arena that is memory of its `device`.
    """

    name: str
    bytes: str
    first: int
    last: int
    offset: str
    place: str = ""
    device: str = "cpu:0"


class ViewRecord(NamedTuple):
    """A value inside the root of index `root`, `offset` bytes after its start."""

    name: str
    root: int
    offset: str
    bytes: str
    place: str = ""


class UpdateRecord(NamedTuple):
    """An input, by its number, that a call updates in place: all of its `bytes`.

    `reads` are the calls that read its value from before the call, `writes` those that write the new one;
    calls count from 0 in the order of the step table. `dlc.runtime.artifact.update_check` verifies them.
    """

    input: int
    bytes: str
    reads: tuple[int, ...] = ()
    writes: tuple[int, ...] = ()


class Certificate(NamedTuple):
    """The memory plan of one program.

    `order_bound`: the peak of live bytes for the order of the calls as they are. `any_order_bound`: a lower
    bound on that peak for every order, since that many bytes are live while one of the `witnesses` runs.
    """

    arena: str
    order_bound: str = "0"
    any_order_bound: str = "0"
    witnesses: tuple[int, ...] = ()
    roots: tuple[RootRecord, ...] = ()
    views: tuple[ViewRecord, ...] = ()
    updates: tuple[UpdateRecord, ...] = ()


def read_certificate(data: bytes) -> Certificate:
    """Parse a certificate section. Raises ValueError, which says what is malformed."""
    return schema.decode(Certificate, canonical_json.load(data))


def certificate_bytes(certificate: Certificate) -> bytes:
    """The bytes of a certificate section."""
    return canonical_json.dump(schema.encode(certificate))


def device_bytes(plan: Plan, certificate: Certificate) -> dict[str, int]:
    """Bytes of the arena on each device."""
    ends: dict[str, int] = {}
    starts: dict[str, int] = {}
    for span, root in zip(plan.roots, certificate.roots, strict=True):
        starts[root.device] = min(span.offset, starts.get(root.device, span.offset))
        ends[root.device] = max(span.end, ends.get(root.device, 0))
    return {device: end - starts[device] for device, end in sorted(ends.items())}


def plan_at(certificate: Certificate, dims: Mapping[str, int], sizes: Sequence[int]) -> Plan:
    """The plan at these dims. Raises BadExpression where a size has no value at them."""

    def evaluated(text: str) -> int:
        return size_expressions.evaluate(text, dims, sizes)

    return Plan(
        arena=evaluated(certificate.arena),
        order_bound=evaluated(certificate.order_bound),
        any_order_bound=evaluated(certificate.any_order_bound),
        witnesses=certificate.witnesses,
        roots=[
            Span(root.name, evaluated(root.offset), evaluated(root.bytes), root.first, root.last)
            for root in certificate.roots
        ],
        views=[
            Extent(view.name, view.root, evaluated(view.offset), evaluated(view.bytes))
            for view in certificate.views
        ],
    )
