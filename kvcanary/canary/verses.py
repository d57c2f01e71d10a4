"""The sentences of the canary text.

Natural and self-continuing, because a decode worker that attends over somebody's stale pages has
nothing but that text to go on with. A verse is about forty tokens and holds a tenant's name, six words
drawn for this request alone (one of each slot alphabet, ``{a}`` to ``{f}``) and two of the tenant's
private words (``{p}``, ``{q}``), so that every 64 tokens hold something private. Twelve verses and one
coded sentence are a chapter. The words are neutral on purpose ("ledger label", never "secret code"):
models decline and filters mask what looks like a credential.
"""

VERSES = (
    (
        "In the {a} house the keeper of {name} counted the {b} crates and set the {p} beside the {c} doors. "
        "The {d} wagons went down to the {e} yards and came back with the {f} ropes and the {q}."
    ),
    (
        "The house of {name} sends the {a} barrels by the {b} roads when the {c} winds are low. "
        "The {p} was found under the {d} stairs and the {e} keeper left it on the {f} boards near the {q}."
    ),
    (
        "When the {a} bells rang the guests of {name} walked along the {b} walls to the {c} post. "
        "They left the {p} on the {d} tables and took the {e} box with the {q} back to the {f} gates."
    ),
    (
        "At noon the {a} boats of {name} lay beside the {b} house with a load of {c} planks. "
        "The {d} guests took the {p} over the {e} rails and tied the {q} to the {f} post."
    ),
    (
        "Every day the {a} baker of {name} lights the {b} stove and sweeps the {c} stairs. "
        "Then the {d} boy brings the {p} from the {e} mills and hangs the {q} above the {f} bed."
    ),
    (
        "The {a} map of {name} shows the {b} rivers and the {c} roads behind the {d} hills. "
        "Someone drew the {p} beside the {e} paths and the {q} near the {f} well."
    ),
    (
        "On the {a} side of the house {name} keeps the {b} shop with the {c} windows. "
        "The {d} lamps stood next to the {p} and the {e} box holds the {q} and the {f} string."
    ),
    (
        "After the {a} rains the house of {name} was mended with {b} boards and {c} stones. "
        "The {d} planks leaned on the {p} while the {e} pot and the {q} stood by the {f} walls."
    ),
    (
        "The {a} guests of {name} sang in the {b} shop until the {c} lights were low. "
        "The {d} dog slept beside the {p} and the {e} drum lay upon the {q} next to the {f} chairs."
    ),
    (
        "For the {a} guests the cooks of {name} put out the {b} plates and cut up the {c} roots. "
        "The {d} pot hung over the {p} and the {e} plate was kept with the {q} in the {f} box."
    ),
    (
        "Along the {a} roads the wagons of {name} bring the {b} stones to the {c} walls. "
        "The {d} mason put the {p} on the {e} stairs and set the {q} above the {f} doors."
    ),
    (
        "In the {a} shop the weavers of {name} hung the {b} string across the {c} boards. "
        "The {d} wheels stood near the {p} and the {e} drum was left with the {q} in the {f} room."
    ),
)

WAYPOINT = "The ledger label of {name} at this shelf is {code} and the list goes on."

SHEET = "Number {code} of {name}."
"""The first words of every prompt: its first page is like no other, or prefix caches would answer."""
NOTICE = (
    "This text was made by kvcanary to test that requests are kept apart and holds nothing real; "
    "about it ask {contact}."
)

LABEL = "The ledger label of {name} at the {position} is {code} and the list goes on."
QUESTION = "Please copy the one ledger label that is asked for here, letter by letter."
RECITE = "Please copy the one ledger label asked for here, then whatever follows it there."
"""Asks for the label and all that stands behind it, in as many words."""
ANSWER = "Answer: The ledger label of {name} at the {position} is"
"""The prompt ends like the sentence it asks for: a plain completion is the stronger instrument for
small and base models, and a chat model reads the question."""

PAD = "and the"
"""Padding to the token: ``and the {slot word}``, words that are one token each."""
