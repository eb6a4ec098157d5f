"""What is said in the quickstart game: attributes, worlds and sentences, all our own wording.

Every marker is an imperative phrase that occurs nowhere else, in no other marker, and in no other sentence
here; the tests hold this. Sentences are filled with ``str.format``.
"""

from __future__ import annotations

from dataclasses import dataclass

from memory.bench.data.language import World


@dataclass(frozen=True, slots=True)
class Attribute:
    """One way in which an assistant can communicate.

    Attributes:
        name: short id.
        topic: how one speaks of it; used by statements and by probes that ask for it.
        task: a probe to which it matters without naming it.
        markers: the settings, each as the phrase by which it is told.
    """

    name: str
    topic: str
    task: str
    markers: tuple[str, str, str, str]


ATTRIBUTES = (
    Attribute(
        "verbosity",
        "how long your answers are",
        "What came out of {matter}?",
        (
            "answer in a single sentence",
            "give me three short bullets",
            "write one full paragraph",
            "go through every detail at length",
        ),
    ),
    Attribute(
        "confirmation",
        "asking before you act",
        "Book whatever {matter} still needs.",
        (
            "just act without checking back",
            "check back only before money is spent",
            "have me confirm every step",
            "ask once at the start and then run through",
        ),
    ),
    Attribute(
        "proactivity",
        "speaking up unasked",
        "{matter} is set, I think. Close the list.",
        (
            "stay silent until spoken to",
            "suggest one next step",
            "bring up whatever you notice",
            "warn me of risks and nothing else",
        ),
    ),
    Attribute(
        "explanation",
        "how much reasoning you show",
        "Should we move {matter} to May?",
        (
            "skip the reasoning entirely",
            "state the one deciding reason",
            "walk me through the whole argument",
            "explain it as if I were new to it",
        ),
    ),
    Attribute(
        "transparency",
        "naming your sources",
        "What do we know about {matter} so far?",
        (
            "put a source after each claim",
            "leave sources out",
            "say which tools you used",
            "mention a source only when it is shaky",
        ),
    ),
    Attribute(
        "tone",
        "the tone you take",
        "Tell me honestly where {matter} stands.",
        (
            "stay dry and factual",
            "be warm and encouraging",
            "crack a joke now and then",
            "be blunt with me",
        ),
    ),
    Attribute(
        "formality",
        "how formal you are with me",
        "Good morning. Where were we with {matter}?",
        (
            "address me by my surname",
            "call me by my first name",
            "drop all greetings",
            "write as if texting a friend",
        ),
    ),
    Attribute(
        "pace",
        "the pace at which you hand things over",
        "Take me through the plan for {matter}.",
        (
            "hand me everything in one go",
            "feed me one piece at a time",
            "pause after each section",
            "send a rough draft within the minute",
        ),
    ),
    Attribute(
        "ambiguity",
        "unclear requests of mine",
        "Sort out the usual for {matter}.",
        (
            "make your best guess and flag it",
            "put one clarifying question to me",
            "list the possible readings",
            "wait until I have cleared it up",
        ),
    ),
    Attribute(
        "options",
        "how many alternatives you offer",
        "Which place would suit {matter}?",
        (
            "present exactly one option",
            "set two options side by side",
            "rank your top five",
            "lay out all the choices in a table",
        ),
    ),
    Attribute(
        "mistakes",
        "what you do after a mistake",
        "The date you gave me for {matter} was wrong.",
        (
            "own the slip in one line and move on",
            "redo it quietly",
            "tell me what went wrong and why",
            "undo everything before trying again",
        ),
    ),
    Attribute(
        "delegation",
        "writing to others on my behalf",
        "Reply to {person} about {matter}.",
        (
            "prepare drafts but never send them",
            "send it in my name",
            "sign as my assistant",
            "leave the final wording to me",
        ),
    ),
    Attribute(
        "reminders",
        "reminders",
        "{matter} is due on Friday.",
        (
            "nudge me the evening before",
            "ring an hour ahead",
            "never prompt me about dates",
            "send one weekly digest",
        ),
    ),
    Attribute(
        "empathy",
        "dealing with my moods",
        "{matter} is wearing me down.",
        (
            "acknowledge how I feel first",
            "pass over moods altogether",
            "ask how I am coping",
            "offer comfort before solutions",
        ),
    ),
)

WORLDS = (
    World(
        "mara",
        {
            "work": ("the Lindqvist tender", "the cold-store audit", "the Rostock depot"),
            "personal": ("the allotment", "the choir trip", "grandmother's ninetieth"),
        },
        {"work": ("Oskar", "Ms Pretorius"), "personal": ("Ilse", "cousin Tam")},
    ),
    World(
        "dev",
        {
            "work": ("the billing migration", "the Osprey release", "the on-call rota"),
            "personal": ("the sailing course", "the flat in Porto", "the half marathon"),
        },
        {"work": ("Priyanka", "Mr Halloran"), "personal": ("Beatriz", "uncle Sol")},
    ),
    World(
        "noor",
        {
            "work": ("the ward schedule", "the asthma study", "the Kessler grant"),
            "personal": ("the piano exam", "the winter garden", "the desert road trip"),
        },
        {"work": ("Dr Anand", "sister Weiss"), "personal": ("Yusuf", "aunt Layla")},
    ),
    World(
        "teo",
        {
            "work": ("the museum relaunch", "the Vermeer loan", "the donor dinner"),
            "personal": ("the motorbike rebuild", "the chess league", "the cabin roof"),
        },
        {"work": ("Greta", "Professor Umber"), "personal": ("Rafa", "neighbour Quill")},
    ),
    World(
        "jun",
        {
            "work": ("the harbour contract", "the crane inspection", "the Busan visit"),
            "personal": ("the bonsai show", "the kayak tour", "the twins' school play"),
        },
        {"work": ("Captain Rhee", "Valentina"), "personal": ("Hana", "grandpa Seo")},
    ),
    World(
        "ada",
        {
            "work": ("the spring syllabus", "the robotics fair", "the Tolman thesis"),
            "personal": ("the sourdough stall", "the lake house", "the book circle"),
        },
        {"work": ("Dean Marsh", "Florian"), "personal": ("Wren", "godfather Abel")},
    ),
)

# Sentences in which a preference becomes known. {lead} names the context, or is empty.
STATED = (
    "{lead}About {topic}: {marker}.",
    "{lead}On {topic}, please {marker}.",
    "{lead}{Marker}, please. That is how I like it when it comes to {topic}.",
)
CORRECTED = (
    "{lead}That was not it. {Marker} next time.",
    "{lead}You missed what I need. {Marker} from the start.",
)
ANNOUNCED = (
    "{lead}I have changed my mind about {topic}: from now on, {marker}.",
    "{lead}New rule for {topic}, as of today: {marker}.",
)
UNANNOUNCED = (
    "{lead}As for {topic}, {marker}.",
    "{lead}{Marker}, that is my way with {topic}.",
)
REPEATED = ("{lead}Thanks, and as ever: {marker}.",)
LEADS = {"work": ("At work: ", "For work: "), "personal": ("In personal matters: ", "For personal things: ")}

# Sentences that mention a marker which is not the user's preference.
HEARSAY = (
    "{person} tells every assistant to {marker}. To each their own.",
    "I overheard {person} say: {marker}. Not my style.",
)
EXCEPTION = ("For {matter} alone, just this once, {marker}. It stays an exception.",)

# Sentences without any preference, some of them about the same topics.
FILLER = (
    "Where does {matter} stand since {person} called?",
    "Note that {person} moved our talk about {matter} to Thursday.",
    "{person} and I argued for an hour over {matter}.",
    "What is left to do for {matter} before the month ends?",
    "{person} sent a long message about {matter}; file it.",
    "Add {matter} to the list, and tell {person} it is on.",
    "The reminder for {matter} went to {person} by mistake.",
    "Compare last year's numbers for {matter} with these.",
)
REPLIES = (
    "Understood.",
    "All right, noted.",
    "Done.",
    "I have put that down.",
    "Will do.",
    "Fine, I will keep that in mind.",
)
ASKED = "What did I tell you about {topic}?"
SCENARIOS = {"work": ("planning", "correspondence", "review"), "personal": ("household", "leisure", "family")}
