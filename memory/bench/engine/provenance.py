"""Records what ran: versions, source revision, and options filled in from the ground truth."""

from __future__ import annotations

import platform
import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, packages_distributions, requires, version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from memory.bench.data.language import load_language
from memory.bench.data.timeline import TimelineSet
from memory.bench.engine.manifest import (
    CellRecord,
    DataRecord,
    LeftOutRecord,
    Manifest,
    ProviderRecord,
    VariantRecord,
    VersionRecord,
)
from memory.bench.engine.matrix import Experiment
from memory.bench.engine.models import role_records
from memory.bench.engine.settings import Price, Variant
from memory.contract.errors import ConfigError, MemslotError
from memory.contract.traits import AdapterTraits
from memory.plugins.config import MemslotConfig
from memory.plugins.hookspecs import PluginInfo
from memory.plugins.installed import entry_points
from memory.plugins.opening import build_slot
from memory.plugins.redaction import HIDDEN
from memory.plugins.registry import GROUPS, MemoryAdapterRegistry
from memory.runtime._provider import Provider


def oracle_matrix(data: TimelineSet) -> dict[str, dict[str, dict[str, list[dict[str, Any]]]]]:
    """The truth over time, as the ``matrix`` option of the condition ``oracle_ipas``."""
    matrix: dict[str, dict[str, dict[str, list[dict[str, Any]]]]] = {}
    for timeline in data.timelines:
        contexts = matrix.setdefault(timeline.persona_id, {})
        for known in timeline.preferences:
            phases = contexts.setdefault(known.context, {}).setdefault(known.attribute, [])
            began = {"from": known.stated_at.isoformat()} if phases else {}
            phases.append({"value": known.value, **began})
    return matrix


def static_profile(data: TimelineSet) -> dict[str, str]:
    """Each persona's first preferences, as the ``profiles`` option of ``static_profile``."""
    topics = {name: attribute.topic for name, attribute in load_language().by_name.items()}
    profiles = {}
    for timeline in data.timelines:
        first: dict[tuple[str, str], str] = {}
        for known in timeline.preferences:
            first.setdefault((known.context, known.attribute), known.value)
        lines = [
            f"{context}, {topics.get(name, name)}: {first[context, name]}" for context, name in sorted(first)
        ]
        profiles[timeline.persona_id] = "\n".join(lines)
    return profiles


# Conditions that get the truth: the option, its builder, and options that provide the truth themselves.
KNOWS_TRUTH: dict[str, tuple[str, Callable[[TimelineSet], Any], tuple[str, ...]]] = {
    "oracle_ipas": ("matrix", oracle_matrix, ()),
    "static_profile": ("profiles", static_profile, ("profile",)),
}


def wire_truth(
    config: MemslotConfig, info: PluginInfo, data: TimelineSet
) -> tuple[MemslotConfig, tuple[str, ...]]:
    """The configuration that the provider is built from, and the names of the options that were filled in.

    Conditions that know the truth get it from the timeline, unless their block provides it. The default scope
    is dropped, because a run makes its own scopes.
    """
    wired: dict[str, Any] = {}
    given = KNOWS_TRUTH.get(config.provider) if info.kind == "control" else None
    if given is not None and any(timeline.preferences for timeline in data.timelines):
        option, truth, own = given
        if not {option, *own} & config.options.keys():
            wired[option] = truth(data)
    memory = config.memory.model_copy(update={"scope": None})
    return replace(config, memory=memory, options={**config.options, **wired}), tuple(wired)


def language_models(published: Any) -> tuple[str, ...]:
    """The models that ``llm`` blocks name, anywhere in a provider's published options."""
    found: list[str] = []
    for name, value in published.items() if isinstance(published, dict) else ():
        own = value.get("model") if isinstance(value, dict) and name == "llm" else None
        found += [own] if isinstance(own, str) and own != HIDDEN else []
        found += language_models(value)
    return tuple(dict.fromkeys(found))


SCRIPTED = "scripted"
"""The prefix of the model names of ``memslot tools scripted-llm``. No real model's name begins with it."""


def provider_record(info: PluginInfo, traits: AdapterTraits, models: Sequence[str] = ()) -> ProviderRecord:
    script = "scripted extractor" if info.kind == "architecture" else "scripted model"
    stand_ins = [script] if any(model.startswith(SCRIPTED) for model in models) else []
    return ProviderRecord(
        backend=info.name if info.kind == "architecture" else None,
        condition=info.name if info.kind == "control" else None,
        kind=traits.kind,
        summary=info.summary,
        equivalent_control=traits.equivalent_control,
        differs_from_control=traits.differs_from_control,
        fallback_components=(*stand_ins, *traits.fallback_components),
    )


@lru_cache(maxsize=1)
def version_record() -> VersionRecord:
    """The memslot and the interpreter that run."""
    return VersionRecord(
        memslot=version("memslot"),
        python=f"{platform.python_implementation()} {platform.python_version()}",
        platform=f"{platform.system()} {platform.machine()}",
        revision=_revision(),
    )


def _revision() -> str | None:
    """The revision of the checkout that memslot runs from; None for an installed copy or without git."""

    def ask(*arguments: str) -> str:
        # Takes no lock on the checkout, which an interrupted call would leave behind.
        command = ("git", "--no-optional-locks", "-C", str(Path(__file__).parent), *arguments)
        answer = subprocess.run(command, capture_output=True, text=True, timeout=5.0, check=True)
        return answer.stdout.strip()

    try:
        ask("ls-files", "--error-unmatch", "__init__.py")
        changed = ask("status", "--porcelain", "--untracked-files=no")
        return ask("rev-parse", "HEAD") + (" with local changes" if changed else "")
    except (OSError, subprocess.SubprocessError):
        return None


def distributions(info: PluginInfo) -> dict[str, str]:
    """Name -> version of memslot's requirements, the plugin and its SDK, as far as they are installed."""
    # Requirements of extras carry a marker. They count only if the provider uses them.
    plain = (text for text in requires("memslot") or () if "extra ==" not in text)
    plugin = [point.dist for point in entry_points(GROUPS[info.kind]).select(name=info.name)]
    names = {
        "memslot",
        *(each.name for each in plugin if each),
        *(re.split(r"[^\w.-]", text)[0] for text in plain),
    }
    owners = packages_distributions() if info.sdk_modules else {}
    for module in info.sdk_modules:
        names.update(owners.get(module.split(".")[0], ()))
    found = {}
    for name in sorted(names):
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def data_record(data: TimelineSet) -> DataRecord:
    tests = (test for timeline in data.timelines for test in timeline.tests)
    judged = sum(beat.truth is not None for test in tests for beat in test.script.beats)
    return DataRecord(
        timeline=data.name,
        name=data.data_name,
        sha256=data.data_hash,
        seed=data.seed,
        wordings_sha256=data.wordings_sha256,
        personas=len(data.timelines),
        sessions=sum(len(timeline.sessions) for timeline in data.timelines),
        turns=sum(len(timeline.turns) for timeline in data.timelines),
        probes=sum(len(timeline.probes) for timeline in data.timelines) + judged,
        notes=data.notes,
    )


def without_broken(
    experiment: Experiment, registry: MemoryAdapterRegistry
) -> tuple[Experiment, tuple[VariantRecord, ...]]:
    """The experiment without the providers that cannot be built, and the records of the others.

    Providers that cannot be built are listed as broken. A provider that equals its control shares one record
    with it. Raises the last error if no provider is left.
    """
    kept: list[Variant] = []
    records: list[VariantRecord] = []
    broken: list[LeftOutRecord] = []
    last: MemslotError | None = None
    data = experiment.timelines(experiment.settings.seeds[0])
    for variant in experiment.settings.providers:
        given = experiment.config(variant)
        info = registry.selected(given)
        config, wired = wire_truth(given, info, data)
        options = config.parse_options(info.options)
        try:
            with TemporaryDirectory(prefix="memslot-") as place:  # nothing is opened
                slot = build_slot(config, registry=registry, data_dir=Path(place))
                capabilities, traits = tuple(sorted(slot.capabilities())), slot.traits
        except MemslotError as error:
            last = error
            why = config.scrubber(options)(f"cannot be built: {error}")
            broken.append(LeftOutRecord(label=variant.label, why=why, broken=True))
            continue
        published = config.redacted(options)
        models = language_models(published["memory"][config.group][config.provider])
        provider = provider_record(info, traits, models)
        record = VariantRecord(
            label=variant.label,
            series=variant.series or variant.label,
            group=variant.group,
            provider=provider,
            distributions=distributions(info),
            config=published,
            config_hash=config.config_hash(options),
            options_hash=config.options_hash(options),
            models=models,
            wired=wired,
            budget=given.memory.budget,
            counter=given.token_counter().name,
            capabilities=capabilities,
            consistency=traits.consistency,
            cs_filtering=traits.cs_filtering,
            pet_observability=traits.pet_observability,
            read_only=given.memory.read_only_test_sessions,
        )
        equal = next((place for place, each in enumerate(records) if _are_one(each, record)), None)
        if equal is None:
            kept.append(variant)
            records.append(record)
        else:
            also = (*records[equal].also, record.label)
            records[equal] = records[equal].model_copy(update={"also": also})
    if last is not None and not kept:
        raise last
    settings = experiment.settings.model_copy(update={"providers": tuple(kept)})
    left_out = (*experiment.left_out, *broken)
    one_row = tuple(
        f"{' and '.join((each.label, *each.also))} have equal options: one row stands for all of them."
        for each in records
        if each.also
    )
    notes = (*experiment.notes, *one_row)
    return replace(experiment, settings=settings, left_out=left_out, notes=notes), tuple(records)


def _are_one(first: VariantRecord, second: VariantRecord) -> bool:
    """Whether one provider is the other's equivalent control, with equal options and settings."""
    names = {first.provider.name, second.provider.name}
    controls = {first.provider.equivalent_control, second.provider.equivalent_control}
    same = ("options_hash", "budget", "group", "read_only", "counter")
    return (
        len(names) == 2
        and bool(names & controls)
        and all(getattr(first, name) == getattr(second, name) for name in same)
    )


def _check_prices(manifest: Manifest, prices: Mapping[str, Price]) -> None:
    """Raises ConfigError if the price table lacks a used model, before anything is written."""
    used = {
        role.model or role.provider or "": f"roles.{role.role}"
        for role in manifest.roles
        if role.kind == "model"
    }
    used |= {model: each.label for each in manifest.variants for model in each.models}
    for model, user in used.items() if prices else ():
        if model not in prices:
            raise ConfigError(f"bench.prices: has no price of {model}, which {user} uses; add it")


def first_manifest(
    experiment: Experiment,
    variants: tuple[VariantRecord, ...],
    experiment_id: str,
    created: datetime,
    models: Mapping[str, Provider] | None,
    cells: tuple[CellRecord, ...],
) -> Manifest:
    """The manifest before anything is played. Raises ConfigError for roles or prices that are wrong."""
    settings = experiment.settings
    hidden = dict.fromkeys(("output", "data", "wordings", "providers", "roles"), True)
    shown = settings.model_dump(mode="json", exclude={**hidden, "executor": {"address"}})
    manifest = Manifest(
        experiment_id=experiment_id,
        created_at=created,
        versions=version_record(),
        settings={**shown, "providers": [variant.label for variant in settings.providers]},
        scope=experiment.scope,
        left_out=experiment.left_out,
        notes=experiment.notes,
        hashes={},
        data={str(seed): data_record(experiment.timelines(seed)) for seed in settings.seeds},
        roles=role_records(settings, models),
        variants=variants,
        cells=cells,
    )
    _check_prices(manifest, settings.prices)
    return manifest.model_copy(update={"hashes": manifest.parts()})
