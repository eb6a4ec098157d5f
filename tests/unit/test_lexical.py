"""The lexical embedder: deterministic, unit length, and useful without a model in English and Chinese."""

import math
import string
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.adapter.models import LexicalHashEmbedder

EMBEDDER = LexicalHashEmbedder()
ANY_TEXT = st.text(alphabet=st.characters(codec="utf-8"), max_size=200)


def dot(left, right):
    return math.fsum(a * b for a, b in zip(left, right, strict=True))


def best(question, documents):
    query = EMBEDDER.embed_query(question)
    return max(documents, key=lambda text: dot(query, EMBEDDER.embed_document(text)))


@given(ANY_TEXT)
def test_every_text_has_a_unit_vector(text):
    for vector in (EMBEDDER.embed(text), EMBEDDER.embed_query(text), EMBEDDER.embed_document(text)):
        assert len(vector) == EMBEDDER.dimensions
        assert math.isclose(dot(vector, vector), 1.0, rel_tol=1e-9)


# Not all of Unicode: the capital of a dotless i is an ordinary I, so that case does matter there.
@given(st.text(alphabet=string.printable + "äöüéñçàèΑαΒβДдЖж"))
def test_case_and_compatibility_forms_do_not_matter(text):
    assert EMBEDDER.embed(text) == EMBEDDER.embed(text.upper()) == EMBEDDER.embed(text.lower())
    assert EMBEDDER.embed("ＡＢＣ tea") == EMBEDDER.embed("abc TEA")


@pytest.mark.thorough
def test_vectors_are_the_same_in_another_process():
    code = (
        "from memory.adapter._lexical import LexicalHashEmbedder as E;"
        "print(repr(E(128).embed_document('Oolong 乌龙茶, twice: oolong!')))"
    )
    other = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": "7"}
    )
    assert other.stdout.strip() == repr(
        LexicalHashEmbedder(128).embed_document("Oolong 乌龙茶, twice: oolong!")
    )


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("Which tea does she like?", "My favourite tea is oolong."),
        ("When did they paint the fence?", "We painted our fences last week."),
        ("Which one is her favorite?", "My favourite tea is oolong."),
        ("Where do I usually go running?", "I run along the canal."),
    ],
)
def test_words_inflections_and_spellings_find_their_text(question, answer):
    others = [
        "The weather has been awful.",
        "Did you see the match?",
        "I am tired of meetings, and of what was said in them.",
        "My favourite tea is oolong.",
        "We painted our fences last week.",
        "The museum was closed again.",
        "I run along the canal.",
    ]
    assert best(question, others) == answer


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("我最喜欢什么茶?", "我喜欢喝乌龙茶"),
        ("谁去了博物馆?", "他昨天去了北京的博物馆"),
        ("周末做什么?", "我们周末去爬山"),
        ("红烧肉好吃吗", "妈妈做的红烧肉很好吃"),
    ],
)
def test_chinese_finds_its_text(question, answer):
    documents = [
        "我喜欢喝乌龙茶",
        "他昨天去了北京的博物馆",
        "妈妈做的红烧肉很好吃",
        "我们周末去爬山",
        "公司下周有一个重要的会议",
    ]
    assert best(question, documents) == answer


def test_a_short_message_does_not_beat_the_one_that_answers():
    """What the length in a document's vector is for; the bare cosine gets this wrong."""
    short = "Great, Caroline!"
    long = (
        "Caroline told everyone at the support group how she moved from Sweden four years ago, what it was like "
        "to start again, and why her friends matter so much to her."
    )
    question = "When did Caroline move from Sweden?"
    query = EMBEDDER.embed(question)
    assert best(question, [short, long]) == long
    assert dot(query, EMBEDDER.embed_document(long)) > 2 * dot(query, EMBEDDER.embed_document(short))


def test_short_documents_are_not_alike():
    """mem0 merges entities whose vectors are 0.95 alike."""
    names = ["Alice Smith", "Alice Jones", "Bob", "Berlin", "茶", "!!!", "😀", ""]
    vectors = [EMBEDDER.embed_document(name) for name in names]
    for index, vector in enumerate(vectors):
        for other in vectors[:index]:
            assert dot(vector, other) < 0.9
    assert dot(EMBEDDER.embed_document("Alice"), EMBEDDER.embed_document("alice ")) > 0.999


def test_signs_alone_are_told_apart():
    assert dot(EMBEDDER.embed("😀😀"), EMBEDDER.embed("😀")) > 0.9
    assert abs(dot(EMBEDDER.embed("😀"), EMBEDDER.embed("🎉"))) < 0.5
