"""Reads one answer in memory and keeps only what was recognised: own labels, foreign text, nulls."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kvcanary.canary.codes import PREFIX, CodeId
from kvcanary.canary.folding import fold, squash
from kvcanary.canary.prompt import CanaryPrompt, Position
from kvcanary.canary.recognise import CodeSeen, PhraseSeen, Recogniser, Sightings
from kvcanary.canary.tenants import Cast, Tenant
from kvcanary.record.exchange import ForeignText, Form, Nulls, Recall

LEAST_OPENING = 4
"""Characters of the label asked for that have to open the answer."""
MAX_FOREIGN = 256
"""Sightings that are kept of one answer, the strongest: a record must not grow with what a server sends."""
MAX_NAMES = 1_024
PHRASE_WORDS = 6
"""Slot words of one verse: a whole phrase."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What one answer says, without its text."""

    recall: Recall
    decoy_seen: bool | None
    foreign: tuple[ForeignText, ...]
    nulls: Nulls
    own: frozenset[Form]
    """Forms of the request's own text that came back."""


def read_answer(
    text: str,
    prompt: CanaryPrompt,
    recogniser: Recogniser,
    cast: Cast,
    prompts: Mapping[int, CanaryPrompt],
    tokens: Mapping[int, int],
) -> Reading:
    """Judge the answer to ``prompt`` against everything planted so far.

    ``prompts``: the requests sent so far; whatever else the recogniser knows is planted too.
    ``tokens``: predicted length of each prompt, where known: what places are stated in.
    """
    seen = recogniser.read(text, own=prompt.number)
    prompts = {**recogniser.prompts, **prompts}
    known = {prompt.tenant.index}
    sent = {other.tenant.index for other in prompts.values()}
    decoy_code = prompt.label_id(Position.START) if prompt.decoy else None
    if prompt.decoy:
        known.add(prompt.decoy[1].index)
    sent |= {other.decoy[1].index for other in prompts.values() if other.decoy}
    foreign_tenants = [t for t in cast.tenants if t.index in sent - known]
    own = {code.identity for code in seen.codes if _belongs_to(code.identity, prompt)}
    foreign_codes = [c for c in seen.codes if c.identity not in own and c.identity != decoy_code]
    return Reading(
        recall=_recall(prompt, seen, squash(fold(text))),
        decoy_seen=None
        if decoy_code is None
        else any(c.identity == decoy_code for c in seen.codes),
        foreign=_strongest(
            (
                *(_code(c, prompts, tokens, prompt.writer.run.number) for c in foreign_codes),
                *(_phrase(p, prompts, tokens) for p in seen.phrases if p.request != prompt.number),
                *_names(seen, foreign_tenants, prompt),
                *_private_words(seen, foreign_tenants, prompt),
            )
        ),
        nulls=_nulls(seen, cast, known, sent),
        own=frozenset(_own_forms(seen, own, prompt)),
    )


def _strongest(found: tuple[ForeignText, ...]) -> tuple[ForeignText, ...]:
    """In the order in which they were found, but for what is beyond ``MAX_FOREIGN``."""
    if len(found) <= MAX_FOREIGN:
        return found
    forms = list(Form)
    return tuple(sorted(found, key=lambda t: (forms.index(t.form), -t.extent))[:MAX_FOREIGN])


def _own_forms(seen: Sightings, own: set[CodeId], prompt: CanaryPrompt) -> Iterator[Form]:
    if own:
        yield Form.CODE
    if any(phrase.request == prompt.number for phrase in seen.phrases):
        yield Form.PHRASE
    if prompt.tenant.name_number in seen.names:
        yield Form.NAME
    if seen.private_words.intersection(prompt.tenant.private):
        yield Form.WORD


def _belongs_to(identity: CodeId, prompt: CanaryPrompt) -> bool:
    return (identity.run, identity.request) == (prompt.writer.run.number, prompt.number)


def _recall(prompt: CanaryPrompt, seen: Sightings, squashed: str) -> Recall:
    """A label is kept when eight of its characters came back, or four where the answer begins.

    Nothing but its page has them: 40 bits anywhere, or 20 bits at the one place they were asked for.
    """
    label = prompt.label(prompt.asked)
    opening = squashed.removeprefix(PREFIX).startswith(label[:LEAST_OPENING])
    identity = prompt.label_id(prompt.asked)
    kept = opening or any(code.identity == identity for code in seen.codes)
    return Recall.KEPT if kept else Recall.LOST


def _code(
    code: CodeSeen, prompts: Mapping[int, CanaryPrompt], tokens: Mapping[int, int], run: int
) -> ForeignText:
    identity = code.identity
    owner, tenant = _owner(identity, prompts) if identity.run == run else (None, None)
    return ForeignText(
        form=Form.CODE,
        request=identity.request,
        tenant=tenant.index if tenant else None,
        run=identity.run,
        at_tokens=_place(owner, owner.code_fraction(identity.position), tokens) if owner else None,
        extent=code.characters,
        whole=code.whole,
        altered=code.altered,
    )


def _owner(
    identity: CodeId, prompts: Mapping[int, CanaryPrompt]
) -> tuple[CanaryPrompt | None, Tenant | None]:
    """The prompt that a code stands in, and whose it says it is: for a decoy's label these are two."""
    owner = prompts.get(identity.request)
    if owner:
        return owner, owner.tenant
    for carrier in prompts.values():
        if carrier.decoy and carrier.decoy[0] == identity.request:
            return carrier, carrier.decoy[1]
    return None, None


def _phrase(
    phrase: PhraseSeen, prompts: Mapping[int, CanaryPrompt], tokens: Mapping[int, int]
) -> ForeignText:
    owner = prompts[phrase.request]
    return ForeignText(
        form=Form.PHRASE,
        request=phrase.request,
        tenant=owner.tenant.index,
        run=owner.writer.run.number,
        at_tokens=_place(owner, owner.slot_fraction(phrase.slot), tokens),
        extent=phrase.words,
        whole=phrase.words >= PHRASE_WORDS,
    )


def _names(seen: Sightings, tenants: list[Tenant], prompt: CanaryPrompt) -> list[ForeignText]:
    return [
        _of_tenant(Form.NAME, tenant, prompt, 1, whole=True)
        for tenant in tenants
        if tenant.name_number in seen.names
    ]


def _private_words(
    seen: Sightings, tenants: list[Tenant], prompt: CanaryPrompt
) -> list[ForeignText]:
    return [
        _of_tenant(Form.WORD, tenant, prompt, count, whole=count == len(tenant.private))
        for tenant in tenants
        if (count := len(seen.private_words.intersection(tenant.private)))
    ]


def _of_tenant(
    form: Form, tenant: Tenant, prompt: CanaryPrompt, extent: int, *, whole: bool
) -> ForeignText:
    run = prompt.writer.run.number
    return ForeignText(
        form=form, request=None, tenant=tenant.index, run=run, extent=extent, whole=whole
    )


def _nulls(seen: Sightings, cast: Cast, known: set[int], sent: set[int]) -> Nulls:
    """Phantoms are all who were dealt an identity and have not been sent."""
    everybody = (*cast.tenants, *cast.phantoms)
    own_names = {tenant.name_number for tenant in everybody if tenant.index in known}
    phantoms = [tenant for tenant in everybody if tenant.index not in sent | known]
    names = tuple(sorted(seen.names - own_names))
    phantom_words = {word for phantom in phantoms for word in phantom.private}
    return Nulls(
        code_tests=seen.code_tests,
        code_windows=seen.code_windows,
        phrase_windows=seen.phrase_windows,
        names_seen=names[:MAX_NAMES],
        phantom_words=tuple(sorted(seen.private_words & phantom_words)),
        unverified_codes=seen.unverified_codes,
        complete=seen.complete and len(names) <= MAX_NAMES,
    )


def _place(owner: CanaryPrompt, fraction: float, tokens: Mapping[int, int]) -> int:
    """Words and tokens grow together: a fraction of the words is the same fraction of the tokens."""
    return round(fraction * tokens.get(owner.number, owner.words))
