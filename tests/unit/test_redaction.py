"""Nothing private in what is published, and equal hashes for equal runs (ATTACKS: published things)."""

import hashlib
import json
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Any, Literal

import pytest
from planted import NUMBER, SECRET, SENTENCE, Planted
from pydantic import AnyUrl, BaseModel, ConfigDict, Field, SecretStr
from variants import plain

from memory import ConfigError
from memory.adapter import DataPath, InputFile, PluginOptions, Private, Public
from memory.bench.engine.settings import ExperimentSettings
from memory.plugins import redaction
from memory.plugins.config import load_config
from memory.plugins.redaction import HIDDEN, Redaction, is_credential, resolve_paths, slow_hash
from memory.plugins.registry import MemoryAdapterRegistry
from memory.plugins.settings import MemorySettings

MODELS = {
    **{row.name: row.info.options for row in MemoryAdapterRegistry().rows() if row.info is not None},
    "run": ExperimentSettings,
    "memory": MemorySettings,
}
SHIPPED = pytest.mark.parametrize("name", MODELS)


@pytest.fixture(autouse=True)
def fast(monkeypatch):
    """Hashes that are not slow."""
    redaction._stretched.cache_clear()
    monkeypatch.setattr(redaction, "_ROUNDS", 1)
    yield
    redaction._stretched.cache_clear()


def shown(block, **secrets):
    return Redaction(Path(), {("x", name): text for name, text in secrets.items()}).shown(block, ("x",))


def known(block, base=Path(), **secrets):
    taken = {("x", name): text for name, text in secrets.items()}
    return slow_hash(Redaction(base, taken).content(block, ("x",)))


@SHIPPED
def test_no_plant_is_shown(name):
    planted = Planted()
    all_of_it = shown(planted.model(MODELS[name]))
    text = json.dumps(all_of_it, ensure_ascii=False)
    assert planted.leaves
    assert SECRET not in text
    assert SENTENCE not in text
    for place, kind in planted.leaves.items():
        if kind in ("public", "plain", "fixed") and "." not in place:
            assert not str(all_of_it[place]).startswith(HIDDEN), place


@pytest.mark.parametrize("name", plain("mem0", "rolling_summary", "run", of=MODELS))
def test_every_option_but_credentials_and_places_tells_in_the_hash(name, monkeypatch):
    monkeypatch.setattr(MODELS[name], "effective", lambda self: {}, raising=False)
    plain = Planted()
    original = known(plain.model(MODELS[name]))
    for place, kind in plain.leaves.items():
        if kind == "fixed":
            continue
        other = known(Planted(other=place).model(MODELS[name]))
        assert (other == original) == (kind in ("secret", "data", "input")), f"{place} is {kind}"


class Tone(Enum):
    DRY = "dry"


class Part(PluginOptions):
    name: Public[str] = "part"
    note: str = ""


class Options(PluginOptions):
    """One field of each kind."""

    verify_token: bool = False
    api_key: str | None = None
    password: bool | None = None
    key: int = 0
    tone: Tone = Tone.DRY
    mode: Literal["fast", "slow"] = "fast"
    label: str = "unnamed"
    model: Public[str] | None = None
    pin: Private[int] = 0
    prompt: Private[str] | None = None
    url: Public[str] | None = None
    site: AnyUrl | None = None
    weights: list[float] = Field(default_factory=list)
    words: list[str] = Field(default_factory=list)
    parts: tuple[Part, ...] = ()
    named: dict[str, int] = Field(default_factory=dict)
    levels: Public[dict[str, int]] = Field(default_factory=dict)
    native: dict[str, Any] = Field(default_factory=dict)
    headers: Public[dict[str, Any]] = Field(default_factory=dict)
    store: DataPath | None = None
    text: InputFile | None = None
    elsewhere: Path | None = None
    anything: Any = None
    tags: frozenset[str] = frozenset()


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("verify_token", True, True),  # a switch is a switch, whatever its name
        ("password", False, False),
        ("password", None, None),
        ("api_key", None, None),
        ("key", 4, 4),
        ("tone", "dry", "dry"),
        ("mode", "slow", "slow"),
        ("label", "unnamed", "unnamed"),
        ("model", "gpt-4.1", "gpt-4.1"),
        ("weights", [0.5, 1], [0.5, 1.0]),
        ("parts", [{}], [{"name": "part", "note": ""}]),
        ("levels", {"a": 1}, {"a": 1}),
        ("headers", {"accept": "json", "n": 1, "deep": ["b"]}, {"accept": "json", "n": 1, "deep": ["b"]}),
        ("url", "http://[::1]:80/v1", "http://[::1]:80/v1"),
        ("url", "http://{scope}.internal:8765", "http://{scope}.internal:8765"),
        ("url", f"postgres://me:{SECRET}@db:5/x?password={SECRET}#{SECRET}", "postgres://db:5/x"),
        ("site", f"http://me:{SECRET}@db/x?key={SECRET}", "http://db/x"),
    ],
)
def test_what_is_harmless_is_shown(field, value, expected):
    assert shown(Options(**{field: value}))[field] == expected


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("api_key", SECRET),
        ("label", SENTENCE),
        ("words", [SENTENCE]),
        ("named", {SENTENCE: 1}),
        ("store", SENTENCE),
        ("text", SENTENCE),
        ("elsewhere", SENTENCE),
        ("pin", NUMBER),
        ("prompt", SENTENCE),
        ("native", {"maxconn": NUMBER}),
        ("anything", SENTENCE),
        ("anything", NUMBER),
        ("native", {SENTENCE: True}),
        ("native", {"flag": True, "deep": [{"x": [SECRET]}]}),
        ("headers", {"accept": "json", "X-Api-Key": SECRET}),
        ("headers", {"auth": {"user": SECRET}}),
        ("url", f"http://me:pa/{SECRET}@host/x"),
        ("url", f"http://me:12/{SECRET}@host/x"),
        ("url", f"http://tok#{SECRET}@host"),
        ("url", f"http://host/x;jsessionid={SECRET}"),
        ("url", f"http://host:port/{SECRET}"),
        ("url", f"see http://host/ {SECRET}@"),
    ],
)
def test_what_may_be_secret_is_hidden(field, value):
    text = json.dumps(shown(Options(**{field: value}))[field])
    assert HIDDEN in text
    assert not [leaked for leaked in (SECRET, SENTENCE, str(NUMBER)) if leaked in text]


def test_what_came_from_a_variable_that_holds_a_credential_is_hidden_even_where_it_is_public():
    assert shown(Options(model=SECRET), model="${MODEL_TOKEN}")["model"] == HIDDEN


def test_what_a_model_lets_in_beside_its_fields_is_hidden():
    class Loose(BaseModel):
        model_config = ConfigDict(extra="allow")

    assert shown(Loose.model_validate({"tuning": True})) == {"tuning": HIDDEN}
    assert known(Loose.model_validate({"tuning": 1})) != known(Loose.model_validate({"tuning": 2}))
    assert known(Loose.model_validate({"pwd": "1"})) == known(Loose.model_validate({"pwd": "2"}))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        *(
            (name, True)
            for name in ("api_key", "X-Api-Key", "Ocp-Apim-Subscription-Key", "apiKey", "MY_API_KEY")
        ),
        *((name, True) for name in ("pwd", "passphrase", "http_auth", "Authorization", "MY_SECRET", "key")),
        *((name, True) for name in ("api_keys", "PASSWORD", "bearer", "access_token")),
        *((name, False) for name in ("partition_key", "max_tokens", "token_counter", "keyboard", "", "--")),
    ],
)
def test_names_of_credentials(name, expected):
    assert is_credential(name) is expected


@pytest.mark.parametrize(
    ("options", "other", "same"),
    [
        ({"native": {"partition_key": "a"}}, {"native": {"partition_key": "b"}}, False),
        ({"native": {"n": 1}}, {"native": {"n": 2}}, False),
        ({"native": {"api_key": "a"}}, {"native": {"api_key": "b"}}, True),
        ({"native": {"api_key": "a"}}, {"native": {}}, True),
        ({"native": {"dsn": "pg://u:a@h/d"}}, {"native": {"dsn": "pg://u:b@h/d"}}, True),
        ({"native": {"dsn": "pg://u:a@h/d"}}, {"native": {"dsn": "pg://u:a@h/e"}}, False),
        ({"native": {"dsn": "host=h password=a"}}, {"native": {"dsn": "host=h password='b c'"}}, True),
        ({"native": {"dsn": "host=h password=a"}}, {"native": {"dsn": "host=i password=a"}}, False),
        ({"url": "http://h/?api_key=a"}, {"url": "http://h/?api_key=b"}, True),
        ({"url": "http://h/?version=a"}, {"url": "http://h/?version=b"}, False),
        ({"api_key": "a"}, {"api_key": "b"}, True),
        ({"pin": 1}, {"pin": 2}, False),
        ({"prompt": "a"}, {"prompt": "b"}, False),
        ({"store": "a"}, {"store": "b"}, True),
        ({"store": "a"}, {}, True),
        ({"elsewhere": "a"}, {"elsewhere": "b"}, False),
        ({"mode": "fast", "weights": []}, {}, True),
        ({"weights": [1]}, {"weights": [1.0]}, True),
        ({"verify_token": True}, {"verify_token": False}, False),
    ],
)
def test_what_differs_hashes_apart_and_what_means_the_same_alike(options, other, same):
    hashes = {known(Options(**given)) for given in (options, other)}
    assert len(hashes) == (1 if same else 2)


def test_a_set_has_no_order():
    content = Redaction(Path(), {}).content(Options(tags=frozenset("zyxabc")), ("x",))
    assert content["tags"] == list("abcxyz")


def test_half_a_character_can_be_hashed():
    assert slow_hash({"label": "a\ud800"}) != slow_hash({"label": "a"})


def test_a_file_that_is_read_counts_by_its_content(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).write_text("same", encoding="utf-8")
    (tmp_path / "c").write_text("other", encoding="utf-8")
    a, b, c, none = (known(Options(text=Path(name)), tmp_path) for name in "abcd")
    assert a == b
    assert len({a, c, none}) == 3


def test_a_moment_counts_by_its_instant():
    class When(PluginOptions):
        at: Public[datetime]

    noon, same = (
        When(at=datetime.fromisoformat(text)) for text in ("2026-01-01T12:00Z", "2026-01-01T13:00+01:00")
    )
    assert known(noon) == known(same)


def test_what_a_default_comes_to_counts():
    class Derived(PluginOptions):
        size: int | None = Field(default=None)

        def effective(self):
            return {"size": self.size or 8, "engine": "new"}

    class Older(Derived):
        def effective(self):
            return {"size": self.size or 8, "engine": "old"}

    assert known(Derived()) == known(Derived(size=8)) != known(Derived(size=9))
    assert known(Derived()) != known(Older())


def test_a_variable_that_holds_a_credential_leaves_the_rest_of_the_text_in_the_hash():
    def of(text, written):
        return known(Options(label=text), label=written)

    assert of("https://h/abc", "https://h/${TOKEN}") == of("https://h/def", "https://h/${TOKEN}")
    assert of("https://h/abc", "https://h/${TOKEN}") != of("https://i/abc", "https://i/${TOKEN}")


def test_a_guess_costs_time(monkeypatch):
    monkeypatch.undo()
    redaction._stretched.cache_clear()
    plain = hashlib.sha256(b'"a"').digest()
    assert slow_hash("a") == hashlib.pbkdf2_hmac("sha256", plain, b"memslot ", 200_000).hex()


def test_relative_paths_anywhere_in_options_move_below_the_base():
    class Nested(PluginOptions):
        single: Path
        many: tuple[Path, ...] = ()
        named: dict[str, list[Path]] = Field(default_factory=dict)
        block: Options = Options()

    given = Nested(
        single=Path("a"),
        many=(Path("/b"), Path("c")),
        named={"x": [Path("~/d")]},
        block=Options(store=Path("e")),
    )
    moved = resolve_paths(given, Path("/base"))
    assert moved.single == Path("/base/a")
    assert moved.many == (Path("/b"), Path("/base/c"))
    assert moved.named == {"x": [Path.home() / "d"]}
    assert moved.block.store == Path("/base/e")
    assert resolve_paths(Options(label="plain"), Path("/base")) == Options(label="plain")


def config_of(**options):
    return load_config(
        {
            "memory": {
                "backend": "mem0",
                "scope": {"run_id": "r", "persona_id": "p"},
                "backends": {"mem0": options},
                "data_dir": f"/home/{SECRET}",
            }
        },
        env={"MY_API_KEY": SECRET},
    )


def test_neither_the_repr_nor_an_error_repeats_a_value():
    config = config_of(llm={"model": "m", "api_key": "${MY_API_KEY}", "config": {"note": SENTENCE}})
    assert SECRET not in repr(config).replace(f"/home/{SECRET}", "")
    assert SENTENCE not in repr(config)
    for wrong in (
        {"top_k": SENTENCE},
        {"llm": {"api_kee": SECRET}},
        {"vector_store": {"provider": [SECRET]}},
    ):
        with pytest.raises(ConfigError) as caught:
            config_of(**wrong).parse_options(MODELS["mem0"])
        assert SECRET not in str(caught.value)
        assert SENTENCE not in str(caught.value)


def test_secret_values_of_any_type_stay_secret():
    class Odd(PluginOptions):
        token: SecretStr | None = None
        many: dict[str, SecretStr] = Field(default_factory=dict)

    given = Odd(token=SecretStr(SECRET), many={"a": SecretStr(SECRET)})
    assert SECRET not in json.dumps(shown(given))
    assert known(given) == known(Odd(token=SecretStr("x"), many={"a": SecretStr("y")}))
