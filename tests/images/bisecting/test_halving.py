# SPDX-License-Identifier: Apache-2.0
import math

from hypothesis import given
from hypothesis import strategies as st

from stack.images.bisecting.halving import Answer, first_bad


@given(st.data())
def test_the_first_bad_one_is_among_what_is_found_and_all_else_was_judged(data: st.DataObject) -> None:
    last = data.draw(st.integers(1, 200))
    first = data.draw(st.integers(1, last))
    skipped = data.draw(st.sets(st.integers(1, last)))
    start = data.draw(st.none() | st.integers(0, last + 1))
    asked: dict[int, Answer] = {}

    def ask(number: int) -> Answer:
        assert 0 < number < last
        assert number not in asked
        answer = Answer.SKIPPED if number in skipped else Answer.BAD if number >= first else Answer.GOOD
        asked[number] = answer
        return answer

    found = first_bad(last, ask, start)
    assert first in found
    assert all(asked[number] is Answer.SKIPPED for number in found[:-1])
    assert found[-1] == last or asked[found[-1]] is Answer.BAD
    assert found[0] == 1 or asked[found[0] - 1] is Answer.GOOD
    if not skipped:
        assert list(found) == [first]
        assert len(asked) <= math.ceil(math.log2(last)) + (start is not None)
