"""Negation and opposites: words that turn a prompt's meaning round."""

from __future__ import annotations

from typing import Final

from cachemind.core.guard_words import Reading, stem
from cachemind.core.lexicon import terms, word_set

_NEGATORS: Final = word_set(
    "not no non never without none neither nor nothing nobody nowhere hardly barely "
    "unable except excluding unless only lack lacks lacking instead avoid avoids "
    "avoiding stop stops stopping prevent prevents preventing"
)
_OR_NOT: Final = ("or", "not")
# Two poles a line, each with its near synonyms. Opposites that English builds with a
# prefix (enable/disable, upload/download) follow from the rules below.
_POLES: Final = """
on | off
in | out
up | down
open | close shut
start begin launch | stop end finish halt quit
add append insert attach | remove delete drop detach
accept approve | decline reject refuse deny
include cover contain | exclude omit
allow permit let | forbid prohibit ban block prevent deny
create make build | delete destroy
keep save retain | discard delete lose
increase raise grow boost gain higher | decrease reduce lower shrink cut lose
more most | less least fewer fewest
maximum max maximise maximize | minimum min minimise minimize
best better good great | worst worse bad poor
high higher highest | low lower lowest
big large larger largest huge bigger biggest | small smaller smallest little tiny
long longer longest | short shorter shortest
hot warm hotter | cold cool colder
fast quick faster quicker | slow slower
early earlier earliest | late later latest
old older oldest | new newer newest young younger youngest
easy easier simple | hard harder difficult
cheap cheaper cheapest | expensive dear
strong stronger | weak weaker
heavy heavier dark | light lighter
wet | dry
full | empty
wide wider | narrow narrower
thick | thin
loud noisy | quiet silent
busy | quiet
spicy | mild
soft | hard
safe | dangerous harmful risky
rich | poor
clean | dirty
alive live | dead die
true right correct | false wrong
left | right
top | bottom
front | back
above over | below under beneath
before prior | after
inside within | outside
first | last final
next | previous last same
same similar | different
always | never
everyone everybody all | nobody none
yes | no
pass succeed success | fail failure
win | lose
buy purchase | sell
lend | borrow
rent lease hire | buy own
send | receive
push | pull
give | take receive
arrive arrival come | leave depart departure go
enter entrance | exit leave
love like | hate dislike
benefit advantage pro strength upside | risk con weakness downside drawback
cause | prevent cure treat
question | answer
profit income | loss expense
debit | credit
deposit | withdraw withdrawal
positive plus | negative minus
public | private
local | remote
manual | automatic
temporary | permanent
optional | mandatory required compulsory
free | paid
male man men boy father husband | female woman women girl mother wife
adult parent | child children kid
north northern | south southern
east eastern | west western
buyer tenant | seller landlord
employer | employee
part | full
eat | avoid
connect join | disconnect leave
lock | unlock
freeze | thaw
sunrise | sunset
ascending | descending
vertical | horizontal
"""
_NEGATIVE: Final = word_set("un in im il ir dis non mis de anti")
_SWAPS: Final = terms(
    "en/dis en/de in/de in/ex im/ex in/out up/down over/under pre/post pro/anti sub/un "
    "hyper/hypo macro/micro max/min as/des ac/de ad/sub con/dis as/dis com/dis"
)
_SHORTEST_ROOT: Final = 3


def _poles() -> dict[str, frozenset[str]]:
    opposites: dict[str, set[str]] = {}
    for line in _POLES.strip().splitlines():
        ones, others = (set(map(stem, side.split())) for side in line.split("|"))
        for one in ones:
            opposites.setdefault(one, set()).update(others)
        for other in others:
            opposites.setdefault(other, set()).update(ones)
    return {word: frozenset(found) for word, found in opposites.items()}


def _swaps() -> frozenset[tuple[str, str]]:
    pairs = [swap.partition("/")[::2] for swap in _SWAPS]
    return frozenset(
        _beginnings(*pair)
        for one, other in pairs
        for pair in ((one, other), (other, one))
    )


def negation_differs(one: Reading, other: Reading) -> bool:
    """Return whether the prompts do not negate or restrict equally often."""
    return _negations(one) != _negations(other)


def polarity_differs(one: Reading, other: Reading) -> bool:
    """Return whether a word of one prompt has its opposite in the other.

    Only words that the prompts do not share are compared.
    """
    mine = one.vocabulary - other.vocabulary
    theirs = other.vocabulary - one.vocabulary
    if not mine or not theirs:
        return False
    stems = set(map(stem, theirs))
    return any(
        not stems.isdisjoint(_OPPOSITES.get(stem(word), ())) for word in mine
    ) or any(_built_opposites(word, opposite) for word in mine for opposite in theirs)


def _negations(reading: Reading) -> int:
    # "... or not" asks the same as without it.
    words = reading.words[:-2] if reading.words[-2:] == _OR_NOT else reading.words
    return sum(word in _NEGATORS for word in words)


def _built_opposites(one: str, other: str) -> bool:
    """Return whether English builds the words from one root as opposites."""
    if one[-_SHORTEST_ROOT:] != other[-_SHORTEST_ROOT:]:
        # Only -ful and -less change a word's end.
        return _suffixed(one, other) or _suffixed(other, one)
    beginnings = _beginnings(one, other)
    if beginnings in _PREFIX_SWAPS:
        return True
    return not all(beginnings) and "".join(beginnings) in _NEGATIVE


def _beginnings(one: str, other: str) -> tuple[str, str]:
    """Return what stands before the longest end that the words share."""
    shared = 0
    for mine, theirs in zip(reversed(one), reversed(other), strict=False):
        if mine != theirs:
            break
        shared += 1
    return one[: len(one) - shared], other[: len(other) - shared]


def _suffixed(one: str, other: str) -> bool:
    return one.endswith("ful") and other == one.removesuffix("ful") + "less"


_OPPOSITES: Final = _poles()
_PREFIX_SWAPS: Final = _swaps()
