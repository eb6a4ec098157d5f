"""Sentence forms of the game in English, all our own wording."""

from __future__ import annotations

from memory.bench.data.language import Forms

FORMS = Forms(
    stated=(
        "{lead}About {topic}: {marker}.",
        "{lead}On {topic}, please {marker}.",
        "{lead}{Marker}, please. That is how I like it when it comes to {topic}.",
    ),
    announced=(
        "{lead}I have changed my mind about {topic}: from now on, {marker}.",
        "{lead}New rule for {topic}, as of today: {marker}.",
    ),
    plain=(
        "{lead}As for {topic}, {marker}.",
        "{lead}{Marker}, that is my way with {topic}.",
    ),
    reverted=(
        "{lead}Back to how we had it with {topic}: {marker}.",
        "{lead}The old way was better for {topic}. {Marker} again.",
    ),
    corrected=(
        "{lead}That was not it. {Marker} next time.",
        "{lead}You missed what I need. {Marker} from the start.",
    ),
    complaint=("That does not suit me.", "Not how I like it.", "Try that again, please."),
    hearsay=(
        "{person} tells every assistant to {marker}. To each their own.",
        "I overheard {person} say: {marker}. Not my style.",
    ),
    exception=("For {matter} alone, just this once, {marker}. It stays an exception.",),
    disowned=("to each their own", "not my style", "just this once", "stays an exception"),
    filler=(
        "Where does {matter} stand since {person} called?",
        "Note that {person} moved our talk about {matter} to Thursday.",
        "{person} and I argued for an hour over {matter}.",
        "What is left to do for {matter} before the month ends?",
        "{person} sent a long message about {matter}; file it.",
        "Add {matter} to the list, and tell {person} it is on.",
        "The reminder for {matter} went to {person} by mistake.",
        "Compare last year's numbers for {matter} with these.",
    ),
    named=("Mind {topic} here. {request}", "Keep {topic} in view now. {request}"),
    not_mine=("Who asked for that? I never did, not here.", "Those manners have no place here."),
    leads={
        "work": ("At work: ", "For work: "),
        "personal": ("In personal matters: ", "For personal things: "),
    },
    life={
        "work": ("At the desk, between two meetings.", "On the train to a client.", "Late in the office."),
        "personal": ("At home after dinner.", "Out with the family.", "On a slow Saturday morning."),
    },
    scenarios={
        "work": ("planning", "correspondence", "review"),
        "personal": ("household", "leisure", "family"),
    },
    neutral_reply="Here is what there is.",
    replies=(
        "Understood.",
        "All right, noted.",
        "Done.",
        "I have put that down.",
        "Will do.",
        "Fine, I will keep that in mind.",
    ),
    lead_in="About that.",
)
