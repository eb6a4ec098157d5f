"""What is said in the game in English: the quickstart's attributes and worlds, and what replies show of them."""

from __future__ import annotations

from memory.bench.data import quickstart_text as text
from memory.bench.data.language import Attribute, Forms, Language

_ACTED = {
    "verbosity": (
        "Short version: it went through.",
        "One. Agreed. Two. Dated. Three. Paid.",
        "To put it in some length, it was agreed and dated, and the rest follows from that.",
        "From the beginning, with everything that was said and by whom:",
    ),
    "confirmation": (
        "I went ahead and did it.",
        "Nothing costs anything so far, so I went on; the paid part waits for your word.",
        "May I take the first step now?",
        "May I begin? After that I shall not interrupt you.",
    ),
    "proactivity": (
        "Closed. Nothing further.",
        "A next step you could take: call them.",
        "While I was at it I saw four more things.",
        "Beware: the deadline is at risk.",
    ),
    "explanation": (
        "Yes, move it.",
        "Yes; what decides it is the weather.",
        "Yes, and this is how I got there, point by point:",
        "Yes. To begin with the basics of moving a date:",
    ),
    "transparency": (
        "All known facts [1], dates [2], sums [3].",
        "What is known, plainly:",
        "Looked up with the calendar and the mail search:",
        "Known so far; only the sum comes from a doubtful place.",
    ),
    "tone": (
        "Status: open. Remaining: two items.",
        "You are doing so well, and it is nearly there!",
        "It stands like my diet: announced.",
        "Frankly, it is a mess.",
    ),
    "formality": (
        "Good morning, with all due respect to your family name.",
        "Good morning, my dear friend by first name!",
        "Straight on where we stopped:",
        "hey hey, so we were at",
    ),
    "pace": (
        "The whole plan, complete:",
        "Part one only; say when you want part two.",
        "Section one ends here. I wait a moment.",
        "A quick rough version, right now:",
    ),
    "ambiguity": (
        "I took it to mean the standing order (a guess).",
        "Which of the two did you mean?",
        "This could mean three things: a, b, c.",
        "I hold until it is clear.",
    ),
    "options": (
        "Take the old mill.",
        "The old mill | the new hall.",
        "1 mill, 2 hall, 3 barn, 4 pier, 5 inn.",
        "Place, price, distance, seats: all that there are.",
    ),
    "mistakes": (
        "My error, noted; on we go.",
        "Here it is again with the right date.",
        "The date was off because I read the old mail.",
        "I have rolled all of it back first.",
    ),
    "delegation": (
        "A draft lies ready, unsent.",
        "Sent, signed with your name.",
        "Sent, signed 'assistant to'.",
        "Two lines are open for your own words.",
    ),
    "reminders": (
        "You hear from me on Thursday night.",
        "You hear from me sixty minutes before.",
        "Noted, and you will not hear from me.",
        "It goes into Sunday's overview.",
    ),
    "empathy": (
        "That sounds hard. Now, to the matter:",
        "To the matter, then:",
        "How are you holding up?",
        "Take a breath; you are not alone. Later, what we can do:",
    ),
}

ENGLISH = Language(
    name="en",
    attributes=tuple(
        Attribute(entry.name, entry.topic, entry.task, entry.markers, _ACTED[entry.name])
        for entry in text.ATTRIBUTES
    ),
    worlds=text.WORLDS,
    forms=Forms(
        stated=text.STATED,
        announced=text.ANNOUNCED,
        plain=text.UNANNOUNCED,
        reverted=(
            "{lead}Back to how we had it with {topic}: {marker}.",
            "{lead}The old way was better for {topic}. {Marker} again.",
        ),
        repeated=text.REPEATED,
        corrected=text.CORRECTED,
        complaint=("That does not suit me.", "Not how I like it.", "Try that again, please."),
        hearsay=text.HEARSAY,
        exception=text.EXCEPTION,
        disowned=("to each their own", "not my style", "just this once", "stays an exception"),
        filler=text.FILLER,
        named=("Mind {topic} here. {request}", "Keep {topic} in view now. {request}"),
        for_others=(
            "This one is for {person} and goes out in the plain house style, with none of my own habits. {request}",
            "On behalf of {person}, who shares none of my ways, so keep it plain: {request}",
        ),
        plainly=("none of my own habits", "shares none of my ways"),
        not_mine=("Those are my own habits, and they have no place here.",),
        leads=text.LEADS,
        life={
            "work": (
                "At the desk, between two meetings.",
                "On the train to a client.",
                "Late in the office.",
            ),
            "personal": ("At home after dinner.", "Out with the family.", "On a slow Saturday morning."),
        },
        scenarios=text.SCENARIOS,
        neutral_reply="Here is what there is.",
        replies=text.REPLIES,
        lead_in="About that.",
    ),
)
