"""The memory plan that an artifact carries as evidence: where each value lies in the arena, and when.

Time is counted in waves, as `dlc.runtime.abi` says, in the order of the program's table. Sizes
are texts that `dlc.runtime.artifact.size_expressions` reads; `$k` is entry k of the program's list of
sizes. `dlc.runtime.artifact.plan_check` believes none of it.
"""

# Without deferred annotations: the schema reads the classes as they are, at every load.
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from dlc.runtime.artifact import canonical_json, schema, size_expressions
from dlc.runtime.artifact.plan import Extent, Plan, Span


class RootRecord(NamedTuple):
    """One stretch of the arena, in use from its first to its last wave, both included.

    It is in the part of the arena that belongs to its `device`.
    """

    name: str
    bytes: str
    first: int
    last: int
    offset: str
    place: str = ""
    device: str = "cpu:0"


class ViewRecord(NamedTuple):
    """A value that lies inside root number `root`, `offset` bytes after its start."""

    name: str
    root: int
    offset: str
    bytes: str
    place: str = ""


class Certificate(NamedTuple):
    """The plan of one program. `order_bound`: the most that is alive at once, in bytes, for the order
    of the ops as they are; `any_order_bound`: what no order could do with less than, for as much has to be
    there while one of the calls `witnesses` runs."""

    arena: str
    order_bound: str = "0"
    any_order_bound: str = "0"
    witnesses: tuple[int, ...] = ()
    roots: tuple[RootRecord, ...] = ()
    views: tuple[ViewRecord, ...] = ()


def read_certificate(data: bytes) -> Certificate:
    """The certificate that a section holds; raises ValueError that says why it is none."""
    return schema.decode(Certificate, canonical_json.load(data))


def certificate_bytes(certificate: Certificate) -> bytes:
    """What a section holds for this certificate."""
    return canonical_json.dump(schema.encode(certificate))


def device_bytes(plan: Plan, certificate: Certificate) -> dict[str, int]:
    """How many bytes the part of each device has in a plan in numbers."""
    found: dict[str, int] = {}
    starts: dict[str, int] = {}
    for span, root in zip(plan.roots, certificate.roots, strict=True):
        starts[root.device] = min(span.offset, starts.get(root.device, span.offset))
        found[root.device] = max(span.end, found.get(root.device, 0))
    return {device: end - starts[device] for device, end in sorted(found.items())}


def plan_at(certificate: Certificate, dims: Mapping[str, int], sizes: Sequence[int]) -> Plan:
    """The plan in numbers; raises BadExpression where a size has no value at these dims."""

    def number(text: str) -> int:
        return size_expressions.evaluate(text, dims, sizes)

    return Plan(
        arena=number(certificate.arena),
        order_bound=number(certificate.order_bound),
        any_order_bound=number(certificate.any_order_bound),
        witnesses=certificate.witnesses,
        roots=[
            Span(root.name, number(root.offset), number(root.bytes), root.first, root.last)
            for root in certificate.roots
        ],
        views=[
            Extent(view.name, view.root, number(view.offset), number(view.bytes))
            for view in certificate.views
        ],
    )
