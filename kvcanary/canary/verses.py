"""The sentences of the canary text.

Natural and self-continuing, because a decode worker that attends over somebody's stale pages has
nothing but that text to go on with. A verse is about forty tokens and holds a tenant's name, six words
drawn for this request alone (one of each slot alphabet, ``{a}`` to ``{f}``) and two of the tenant's
private words (``{p}``, ``{q}``), so that every 64 tokens hold something private. Twelve verses and one
coded sentence are a chapter. The words are neutral on purpose ("ledger label", never "secret code"):
models decline and filters mask what looks like a credential.
"""

VERSES = (
    "In the {a} hall the keeper of {name} counted the {b} crates and set the {p} beside the {c} door. "
    "The {d} cart went down to the {e} yard and came back with the {f} rope and the {q}.",
    "The house of {name} sends the {a} barrels by the {b} road when the {c} wind is low. "
    "The {p} was found under the {d} stairs and the {e} driver left it on the {f} floor near the {q}.",
    "When the {a} bell rang the guests of {name} walked along the {b} wall to the {c} lawn. "
    "They left the {p} on the {d} table and took the {e} sack with the {q} back to the {f} gate.",
    "At noon the {a} boat of {name} lay beside the {b} pier with a load of {c} planks. "
    "The {d} crew lifted the {p} over the {e} rail and tied the {q} to the {f} post.",
    "Every morning the {a} baker of {name} lights the {b} stove and sweeps the {c} steps. "
    "Then the {d} boy brings the {p} from the {e} mill and hangs the {q} above the {f} bed.",
    "The {a} map of {name} shows the {b} river and the {c} road behind the {d} hill. "
    "Someone drew the {p} beside the {e} path and the {q} near the {f} well.",
    "On the {a} side of the square {name} keeps the {b} shop with the {c} window. "
    "The {d} lamp stands next to the {p} and the {e} box holds the {q} and the {f} string.",
    "After the {a} rain the roof of {name} was mended with {b} boards and {c} nails. "
    "The {d} steps leaned on the {p} while the {e} bucket and the {q} stood by the {f} wall.",
    "The {a} choir of {name} sang in the {b} shed until the {c} moon was high. "
    "The {d} dog slept beside the {p} and the {e} drum lay upon the {q} next to the {f} chair.",
    "For the {a} feast the cooks of {name} washed the {b} plates and peeled the {c} roots. "
    "The {d} pot hung over the {p} and the {e} spoon was kept with the {q} in the {f} chest.",
    "Along the {a} road the wagons of {name} bring the {b} stones to the {c} tower. "
    "The {d} mason put the {p} on the {e} step and painted the {q} above the {f} arch.",
    "In the {a} room the weavers of {name} spread the {b} cloth across the {c} frame. "
    "The {d} wheel turned near the {p} and the {e} wool was rolled with the {q} into the {f} heap.",
)

WAYPOINT = "The ledger label of {name} at this shelf is {code} and the count goes on."

SHEET = "Sheet {code} of {name}."
"""The first words of every prompt: its first page is like no other, or prefix caches would answer."""
NOTICE = (
    "This text was made by kvcanary as a synthetic isolation test and holds nothing real; "
    "about it ask {contact}."
)

LABEL = "The ledger label of {name} at the {position} is {code} {onward}"
ONWARD = {
    "start": "and the ledger label of {name} at the middle is kept on a later page.",
    "middle": "and the ledger label of {name} at the end is kept on a later page.",
    "end": "and that is the whole list.",
}
"""What follows a label leads to the next one, so that one answer can show all three."""
QUESTION = (
    "Please copy the ledger labels of {name} at the start, at the middle and at the end, "
    "the one at the {position} first."
)
ANSWER = "Answer: The ledger label of {name} at the {position} is"
"""The prompt ends like the sentence it asks for: a plain completion is the stronger instrument for
small and base models, and a chat model reads the question."""

PAD = "and the"
"""Padding to the token: ``and the {slot word}``, words that are one token each."""
