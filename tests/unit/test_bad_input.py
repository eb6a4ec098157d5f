"""Bad input is one clear error that names the field and the fix; nothing escapes raw (ATTACKS, "Text")."""

import json
import math
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from variants import examples

from memory import (
    AdapterMode,
    ConfigError,
    ContextBudget,
    Deadlines,
    InputError,
    MemoryEvent,
    MemoryFeedback,
    MemoryScope,
    MemslotError,
    Message,
    NativeMutationRequest,
    NativeQueryRequest,
    ProvenanceRequest,
    RetrieveRequest,
)
from memory.adapter import ContextEntry
from memory.adapter.fields import Frozen
from memory.contract.formatting import is_well_formed, render_section
from memory.plugins.config import load_config
from memory.plugins.hookspecs import PluginOptions

SCOPE = MemoryScope(run_id="r", persona_id="p")
NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)
HALF = "a\ud800b"
EARLY = datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=5)))
LATE = datetime(9999, 12, 31, 23, tzinfo=timezone(timedelta(hours=-5)))


def one_line(error):
    assert "\n" not in str(error)


def a_line_each(error):
    assert all(problem.startswith("config: ") for problem in str(error).splitlines())


def deep(levels):
    value = "x"
    for _ in range(levels):
        value = [value]
    return value


CYCLE = {}
CYCLE["self"] = CYCLE
ODD = {"digits": 10**5000, "deep": deep(200), "cycle": CYCLE}  # by name, because they have no repr

EVENT = {"event_id": "e", "scope": SCOPE, "session_id": "s", "turn_id": "t", "timestamp": NOON}
SAID = [{"role": "user", "content": "x"}]
ASKED = {"query": "q", "scope": SCOPE, "session_id": "s"}
FEEDBACK = {"feedback_id": "f", "scope": SCOPE, "session_id": "s", "timestamp": NOON, "content": "x"}
MODELS = [
    (Message, {"role": "user", "content": HALF}, "content: holds half of a surrogate pair; decode"),
    (Message, {"role": "assistant", "tool_calls": [{"a": HALF}]}, "tool_calls.0: must be JSON"),
    (Message, {"role": "assistant", "tool_calls": [{"a": deep(5000)}]}, "tool_calls.0"),
    (
        MemoryEvent,
        {**EVENT, "messages": SAID, "timestamp": EARLY},
        "timestamp: is outside the years 1 to 9999",
    ),
    (
        MemoryEvent,
        {**EVENT, "messages": SAID, "timestamp": NOON.replace(tzinfo=None)},
        "timestamp: must be tim",
    ),
    (MemoryEvent, {**EVENT, "messages": SAID, "timestamp": math.nan}, "timestamp"),
    (
        MemoryEvent,
        {**EVENT, "messages": SAID, "metadata": {"a": 10**5000}},
        "metadata: must be JSON: strings, finite numbers, booleans, null, lists, objects; mend a",
    ),
    (MemoryEvent, {**EVENT, "messages": SAID, "metadata": CYCLE}, "metadata"),
    (MemoryEvent, {**EVENT, "messages": SAID, "metadata": {1: 2}}, "metadata"),
    (
        MemoryEvent,
        {**EVENT, "messages": SAID, "scope": {"run_id": "*", "persona_id": "p"}},
        "scope: run_id holds",
    ),
    (MemoryEvent, {**EVENT, "messages": SAID, "run_id": "other"}, "contradict scope"),
    (RetrieveRequest, {**ASKED, "query": " "}, "query: is blank"),
    (RetrieveRequest, {**ASKED, "filters": {"a": deep(5000)}}, "filters"),
    (ContextBudget, {"max_items": 2**63}, "max_items: Input should be less than 2147483648"),
    (Deadlines, {"write_s": math.nan}, "write_s: Input should be"),
    (Deadlines, {"retrieve_s": 0}, "retrieve_s: Input should be greater than 0"),
    (Deadlines, {"close_s": -1}, "close_s: Input should be greater than 0"),
    (AdapterMode, {"read_only": True, "reason": HALF}, "reason: holds half"),
    (MemoryFeedback, {**FEEDBACK, "timestamp": LATE}, "timestamp: is outside"),
    (
        NativeMutationRequest,
        {"scope": SCOPE, "operation": "update", "native_id": HALF},
        "native_id: holds half",
    ),
    (ProvenanceRequest, {"scope": SCOPE, "since": EARLY}, "since: is outside"),
]


@pytest.mark.parametrize(
    ("model", "fields", "complaint"),
    MODELS,
    ids=lambda parameter: parameter if isinstance(parameter, str) else "",
)
def test_a_bad_field_is_named(model, fields, complaint):
    with pytest.raises(MemslotError) as caught:
        model(**fields)
    message = str(caught.value)
    assert message.startswith(f"{model.__name__}.")
    assert complaint in message
    assert "\n" not in message
    assert isinstance(caught.value, ValueError)


ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([2**63, -(2**63) - 1, math.nan, math.inf, 0, -1])
    | st.sampled_from(["digits", "deep", "cycle"]).map(lambda name: ODD[name])
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from([HALF, "", " ", "*", "x" * 600, "\x00", "0x_", "1e999", "${", "${A}", "$"])
    | st.binary(max_size=5)
    | st.datetimes(timezones=st.none() | st.timezones())
    | st.sampled_from([EARLY, LATE, NOON, SCOPE, object(), Exception, print, frozenset({1})]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=5) | st.none() | st.integers(), inner, max_size=3)
        | st.tuples(inner)
    ),
    max_leaves=8,
)
PLAIN = {
    Message: {"role": "user", "content": "x"},
    MemoryEvent: {**EVENT, "messages": SAID},
    RetrieveRequest: ASKED,
    ContextBudget: {},
    Deadlines: {},
    AdapterMode: {"read_only": True},
    MemoryFeedback: FEEDBACK,
    NativeMutationRequest: {"scope": SCOPE, "operation": "update"},
    ProvenanceRequest: {"scope": SCOPE},
    NativeQueryRequest: {"scope": SCOPE, "operation": "x"},
    MemoryScope: {"run_id": "r", "persona_id": "p"},
}


@pytest.mark.thorough
@settings(
    max_examples=examples(250), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@given(data=st.data())
def test_whatever_a_host_hands_over_is_taken_or_refused(data):
    model = data.draw(st.sampled_from(list(PLAIN)))
    names = st.sampled_from([*model.model_fields, "run_id", "user_id"])
    fields = {**PLAIN[model], **data.draw(st.dictionaries(names, ANYTHING, min_size=1, max_size=2))}
    try:
        taken = model(**fields)
    except MemslotError as error:
        return one_line(error)
    if "arguments" not in fields:  # of native calls: an SDK's own objects may be among them
        json.loads(taken.model_dump_json())


@pytest.mark.parametrize("moment", [EARLY, LATE])
def test_a_backends_moment_at_the_end_of_the_calendar_is_shown(moment):
    section = render_section("b", "s", [ContextEntry("x", timestamp=moment)])
    assert is_well_formed(section)
    assert str(moment.year) in section


HEAD = "memory:\n  backend: mem0\n  scope: {run_id: r, persona_id: p}\n"
BLOCK = HEAD + "  backends:\n    mem0:\n      x: "
YAMLS = [
    (BLOCK + "!!int abc", ":6:10: not valid YAML: this is not a valid int; quote it if it is text"),
    (BLOCK + "9" * 5000, "this is not a valid int"),
    (BLOCK + "!!bool abc", "this is not a valid bool"),
    (BLOCK + "!!float abc", "this is not a valid float"),
    (BLOCK + "!!timestamp abc", ":6:10: not valid YAML: could not determine a constructor for the tag"),
    (
        BLOCK + "!!python/object/apply:os.getcwd []",
        "a constructor for the tag 'tag:yaml.org,2002:python/object/apply:os.getcwd'",
    ),
    (BLOCK + "&a [*a]", ":6: memory.backends.mem0.x: is nested too deeply or too large, or holds itself"),
    (BLOCK + "{<<: {a: 1}}", "'<<' is not read; write the fields out"),
    (BLOCK + "[" * 2000 + "]" * 2000, "is nested too deeply"),
    (BLOCK + "{? [a] : b}", "a key is no text; keys are names"),
    (BLOCK + '"\\ud800"', "x: holds a NUL character or half a surrogate pair"),
    (BLOCK + "${1A}", "x: holds '${' without a variable; write ${NAME}"),
    (BLOCK + "{1: a, '1': b}", "'1' stands twice"),
    (HEAD + "  backends: 0\n", ":4: memory.backends: must be a mapping"),
    (HEAD + "  backends: {mem0: 0}\n", ":4: memory.backends.mem0: must be a mapping of options"),
    (
        HEAD + "  backends: {mem0: {}}\n  budget: {max_items: true}\n",
        "memory.budget.max_items: must be a number",
    ),
    (HEAD + '  backends: {mem0: {}}\n  data_dir: "a\\0b"\n', "memory.data_dir: holds a NUL"),
    (HEAD + "  backends: {mem0: {}}\nrun: []\n", "run: must be a mapping"),
    (HEAD + "  1: a\n  backends: {mem0: {}}\n", "memory.1: is not a known field"),
    ("~: a\n", "~: is not a known section"),
    ("? {a: b}\n: c\n", "a key is no text"),
]


@pytest.mark.parametrize(
    ("text", "complaint"), YAMLS, ids=lambda parameter: parameter[-30:].encode("unicode_escape").decode()
)
def test_bad_yaml_is_one_line_with_file_field_and_fix(tmp_path, text, complaint):
    path = tmp_path / "memory.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_config(path, env={})
    message = str(caught.value)
    assert message.startswith(str(path))
    assert complaint in message
    assert "\n" not in message


def test_keys_are_text_as_they_are_written(tmp_path):
    path = tmp_path / "memory.yaml"
    path.write_text(BLOCK + "{1: a, ~: b, yes: c, 1.0: d, 0x10: e, '2': f}\n", encoding="utf-8")
    assert load_config(path).options["x"] == {
        "1": "a",
        "~": "b",
        "yes": "c",
        "1.0": "d",
        "0x10": "e",
        "2": "f",
    }


def test_an_alias_is_a_copy(tmp_path):
    path = tmp_path / "memory.yaml"
    path.write_text(BLOCK + "{a: &a {x: 1, y: [2]}, w: *a}\n", encoding="utf-8")
    assert load_config(path).options["x"] == {"a": {"x": 1, "y": [2]}, "w": {"x": 1, "y": [2]}}


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["lists", "mappings"])
def test_an_alias_bomb_is_refused_at_once(tmp_path, kind):
    item = {"lists": "[{}, {}]", "mappings": "{{a: {}, b: {}}}"}[kind]
    lines = ["      x0: &x0 {a: 1}"]
    for level in range(1, 60):
        below = f"*x{level - 1}"
        lines.append(f"      x{level}: &x{level} " + item.format(below, below))
    path = tmp_path / "memory.yaml"
    path.write_text(HEAD + "  backends:\n    mem0:\n" + "\n".join(lines), encoding="utf-8")
    with pytest.raises(ConfigError, match="is nested too deeply or too large"):
        load_config(path, env={})


MAPPINGS = [
    (None, "takes the name of a YAML file, or its content as a mapping"),
    (5, "takes the name of a YAML file"),
    (b"memory.yaml", "takes the name of a YAML file"),
    ("", "takes the name of a YAML file"),
    ("a\0b", "holds a NUL character"),
    ({1: 2, "x": 3, None: 4}, "1: is not a known section"),
    ({"memory": {"backend": "mem0", "backends": {"mem0": CYCLE}}}, "memory.backends.mem0.self"),
    ({"memory": {"backend": "mem0", "backends": {"mem0": {"a": deep(5000)}}}}, "memory.backends.mem0.a"),
    ({"memory": {"backend": "mem0", "backends": {"mem0": {"a": 10**5000}}}}, "a: is larger than any number"),
    ({"memory": {"backend": "mem0", "backends": {"mem0": {1: "a", "1": "b"}}}}, "two keys that are the same"),
    ({"memory": {"backend": "mem0", "backends": {"mem0": {"a": HALF}}}}, "a: holds a NUL character or half"),
    ({"memory": {"backend": 0}}, "memory.backend: must be the name of one"),
    ({"memory": {"backend": "mem0", "backends": "mem0"}}, "memory.backends: must be a mapping"),
]


@pytest.mark.parametrize(
    ("source", "complaint"), MAPPINGS, ids=lambda parameter: parameter if isinstance(parameter, str) else ""
)
def test_a_bad_source_is_named(source, complaint):
    with pytest.raises(ConfigError) as caught:
        load_config(source, env={})
    assert complaint in str(caught.value)


def test_a_half_surrogate_in_the_environment_is_named():
    content = {"memory": {"backend": "mem0", "backends": {"mem0": {"a": "${A}"}}}}
    with pytest.raises(ConfigError, match=r"mem0\.a: holds a NUL character or half a surrogate pair"):
        load_config(content, env={"A": HALF})


TOKENS = """
memory: backend:_ mem0 backends: { } [ ] , :_ -_ &a_ *a <<:_ !!int_ !!bool_ !!timestamp_ !!null_ !!float_ !!set_
!!str_ !x_ ?_ |_ >_ % 0x_ 1 ~ yes .nan ' " \\ud800 \\0 # --- ... é scope:_ run:_ ${A} ${ $ budget:_ deadlines:_
max_tokens:_ write_s:_ -1 token_counter:_ condition:_ 99999999999999999999999999999999
"""
GRAMMAR = st.lists(
    st.sampled_from(["\n", "  ", "\t", "0x_", *(token.replace("_", " ") for token in TOKENS.split())])
    | st.text(max_size=3),
    max_size=25,
).map("".join)


@settings(
    max_examples=examples(300),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(text=GRAMMAR, head=st.sampled_from(["", HEAD, BLOCK]))
@example(text="", head=HEAD)
def test_no_file_escapes_as_another_error(tmp_path, text, head):
    path = tmp_path / "memory.yaml"
    path.write_text(head + text, encoding="utf-8", errors="surrogatepass")
    try:
        config = load_config(path, env={"A": "a"})
        config.config_hash(PluginOptions())
    except ConfigError as error:
        one_line(error)


@settings(
    max_examples=examples(200), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@given(
    source=st.fixed_dictionaries(
        {},
        optional={
            "memory": st.fixed_dictionaries(
                {},
                optional=dict.fromkeys(
                    ("backend", "condition", "scope", "budget", "deadlines", "token_counter", "data_dir"),
                    ANYTHING,
                )
                | {
                    "backend": st.just("mem0") | ANYTHING,
                    "backends": ANYTHING | st.fixed_dictionaries({"mem0": ANYTHING}),
                    "journal": ANYTHING,
                    "conditions": ANYTHING,
                },
            )
            | ANYTHING,
            "run": ANYTHING,
        },
    )
)
def test_no_mapping_escapes_as_another_error(source):
    try:
        load_config(source, env={"A": "a"})
    except ConfigError as error:
        a_line_each(error)


NUMBER = 5


class Worded:
    """No counter until it is made one."""

    name = "worded"

    def count(self, text):
        return len(text.split())


def lies(text):
    return {"How many?": -1}.get(text, "many")


MADE = Worded()


def token_counter(name):
    return load_config({"memory": {"backend": "no_memory", "token_counter": name}}).token_counter()


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("nowhere:count", "'nowhere:count' counts no tokens (ModuleNotFoundError); write"),
        ("", "'' counts no tokens"),
        ("json", "'json' counts no tokens"),
        (f"{__name__}:NUMBER", "'package.module:function' for a function text -> int"),
        (f"{__name__}:lies", "lies' counts no tokens (TypeError)"),
        ("builtins:str", "counts no tokens (TypeError)"),
    ],
)
def test_a_token_counter_counts(name, complaint):
    with pytest.raises(ConfigError) as caught:
        token_counter(name)
    assert str(caught.value).startswith("config: memory.token_counter: ")
    assert complaint in str(caught.value)


def test_a_good_token_counter_is_taken():
    assert token_counter("builtins:len").count("abc") == 3
    assert token_counter(f"{__name__}:MADE") is MADE


def test_what_is_built_when_first_used_is_frozen_and_quotes_nobody():
    """``model_validate`` goes past our own error: pydantic's is seen, and would stand in a log."""

    class Record(Frozen):
        number: int = 1

    assert not Record.__pydantic_complete__, "two hundred of them, of which a hook uses a few"
    with pytest.raises(ValidationError, match=r"Record\s+number") as raised:
        Record.model_validate({"number": "words of somebody"})
    assert "words" not in str(raised.value)
    record = Record(number=2)
    with pytest.raises(ValidationError, match="frozen"):
        record.number = 3
    assert record.number == 2


def test_a_long_key_of_the_user_is_not_named_in_an_error():
    class Record(Frozen):
        deep: dict[str, dict[str, int]] = {}  # noqa: RUF012 (pydantic copies it)

    for length, named in ((40, True), (41, False)):
        name = "k" * length
        with pytest.raises(InputError) as raised:
            Record(deep={name: {"x": "no"}})
        assert (name in str(raised.value)) is named
