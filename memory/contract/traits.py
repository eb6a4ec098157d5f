"""What an adapter declares of itself, and what follows from it: its label, and a part of its health."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import metadata

from memory.contract.errors import InputError
from memory.contract.native_errors import ErrorTable
from memory.contract.receipts import (
    BackendHealth,
    ConditionKind,
    ConsistencyModel,
    CsFiltering,
    PetObservability,
)
from memory.contract.requests import Operation

FILTER_OPERATORS = frozenset({"eq", "ne", "gt", "gte", "lt", "lte", "in", "nin", "contains", "icontains"})
"""The operators of filters. None of them can widen a search."""


@dataclass(frozen=True)
class AdapterTraits:
    """How an adapter behaves, declared once so that the slot can act on it.

    Attributes:
        kind: ``architecture``, or ``control`` for experimental conditions (spec 2.2).
        consistency: when a write becomes retrievable.
        cs_filtering: whether scenario/context/attribute filter natively (``hard``), influence ranking only
            (``soft``), or have no effect (``none``).
        pet_observability: how retrievals show change over time: by ``dated`` rows, by a ``versioned``
            representation, or by neither (``weak``); None if not declared.
        filter_operators: the operators that ``RetrieveRequest.filters`` may use; empty refuses every filter.
        recalls_writes: False for conditions whose context does not come from earlier writes.
        max_concurrency: concurrent native calls; None is unlimited. A scope's writes are always in order. A
            call's deadline begins when it gets its place. A call that polls gives its place back by
            :func:`memory.adapter.yield_turn`.
        write_retries: how often a write may be sent again after an ambiguous failure. Above 0 only if the backend
            deduplicates by event id, or the adapter offers :class:`SupportsEventLookup`.
        bulk_size: events in one bulk call; None is all of them. Each call has its own deadline.
        setup_writes: ``setup_scope`` may change something natively, so a read-only slot sets up no scope.
        asyncio_only: the SDK runs on no other event loop. The slot then refuses to run on trio.
        counts_llm_calls: the adapter reports every answer of a language model by
            :func:`memory.adapter.count_llm_call`.
        extracts: a write waits for a language model. The journal is then on by default, and turns are
            delivered in the background.
        equivalent_control: the control whose method this configuration uses, such as ``simple_rag``.
        differs_from_control: whether this configuration's options differ from that control's defaults.
        score_floor: ``before_turn`` leaves rows with a lower score out of the prompt; None shows all.
        fallback_components: components in place of a model, such as ``lexical embedder``.
        native_memory_types, native_ingest_modes, native_query_modes: the backend's kinds, in its own words;
            None if it names none. Query modes default to the names of ``native_queries``.
        store: distinguishes this store from others of the same backend: an address without credentials, or a
            configured path; "" for the place that follows from ``memory.data_dir``.
        errors: the meaning of the SDK's exceptions. After any other exception, a write may be stored.
        packages: distributions whose versions appear in health.
        native_queries, native_mutations: the operations by name, with their arguments; the slot refuses all others.
            None leaves the refusal to the adapter.
    """

    kind: ConditionKind = "architecture"
    consistency: ConsistencyModel = "immediate"
    cs_filtering: CsFiltering = "none"
    pet_observability: PetObservability | None = None
    filter_operators: frozenset[str] = frozenset()
    recalls_writes: bool = True
    max_concurrency: int | None = None
    write_retries: int = 0
    bulk_size: int | None = None
    setup_writes: bool = True
    asyncio_only: bool = False
    counts_llm_calls: bool = False
    extracts: bool = False
    equivalent_control: str | None = None
    differs_from_control: bool = False
    score_floor: float | None = None
    fallback_components: tuple[str, ...] = ()
    native_memory_types: tuple[str, ...] | None = None
    native_ingest_modes: tuple[str, ...] | None = None
    native_query_modes: tuple[str, ...] | None = None
    store: str = ""
    errors: ErrorTable = field(default_factory=dict)
    packages: tuple[str, ...] = ()
    native_queries: Mapping[str, Operation] | None = None
    native_mutations: Mapping[str, Operation] | None = None

    @classmethod
    def of(cls, adapter: object) -> AdapterTraits:
        """The traits that an adapter declares; by default, with ``eventual`` consistency."""
        declared: AdapterTraits | None = getattr(adapter, "traits", None)
        return cls(consistency="eventual") if declared is None else declared

    def __post_init__(self) -> None:
        if self.equivalent_control is not None and self.kind != "control":
            raise InputError(
                "AdapterTraits.equivalent_control: what is the same as a control is one; declare kind='control'"
            )


def label_of(
    name: str,
    equivalent_control: str | None,
    fallback_components: Sequence[str],
    *,
    differs_from_control: bool = False,
) -> str:
    """A provider's name, followed in parentheses by its control and its fallback components, for figures."""
    hidden = []
    if equivalent_control and differs_from_control:
        hidden.append(f"control, {equivalent_control} with other options")
    elif equivalent_control:
        hidden.append(f"control, the same as {equivalent_control}")
    hidden += [", ".join(fallback_components)] if fallback_components else []
    return f"{name} ({'; '.join(hidden)})" if hidden else name


def declared_health(
    backend_name: str, traits: AdapterTraits, *, versions: Mapping[str, str] | None = None, **seen: object
) -> BackendHealth:
    """Health with the facts that the traits declare. ``versions`` add to those of ``traits.packages``."""
    installed = {}
    for name in traits.packages:
        with suppress(metadata.PackageNotFoundError):
            installed[name] = metadata.version(name)
    queries = tuple(traits.native_queries) if traits.native_queries is not None else None
    return BackendHealth(
        backend_name=backend_name,
        consistency_model=traits.consistency,
        cs_filtering=traits.cs_filtering,
        native_memory_types=traits.native_memory_types,
        native_ingest_modes=traits.native_ingest_modes,
        native_query_modes=traits.native_query_modes or queries,
        versions={**installed, **(versions or {})},
        **seen,
    )
