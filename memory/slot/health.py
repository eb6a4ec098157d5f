"""Health of a backend behind a slot: what the probe says, what the traits declare, what the slot has counted."""

from __future__ import annotations

from memory.contract.adapter import declared_health
from memory.contract.errors import BackendError
from memory.contract.receipts import BackendHealth
from memory.slot.delivery import Delivery
from memory.slot.rules import Rules


async def health_of(rules: Rules, delivery: Delivery) -> BackendHealth:
    """As :meth:`MemorySlot.health`."""
    traits, within_s = rules.traits, rules.deadlines.health_s
    with rules.span("health") as span:
        try:
            health = await rules.call(
                span, within_s, rules.adapter.health, BackendHealth, queue_timeout_s=within_s
            )
        except BackendError as error:
            health = declared_health(
                rules.backend_name,
                traits,
                status="unavailable",
                warnings=(str(error),),
                details=error.diagnostics,
            )
    last = delivery.last_write_at
    of_slot = {
        "writes_in_flight": rules.gate.in_flight,
        "unknown_writes": rules.unknown_writes,
        "lost_traces": rules.lost_traces,
        "last_write_at": last.isoformat() if last else None,
        "waiting_writes": delivery.waiting(),
    }
    noticed = tuple(delivery.warnings())
    return health.model_copy(
        update={
            "status": "degraded" if noticed and health.status == "ok" else health.status,
            "warnings": (*health.warnings, *noticed),
            "latency_ms": span.elapsed_ms,
            "cs_filtering": traits.cs_filtering,
            "pet_observability": traits.pet_observability,
            "condition_kind": traits.kind,
            "equivalent_control": traits.equivalent_control,
            "fallback_components": traits.fallback_components,
            "details": {**health.details, "slot": of_slot},
        }
    )
