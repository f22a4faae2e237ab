"""The contract of a place for derived data, held by the package's own and by a plain folder."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import ChromaStore
from langchain_ctxbudget.flow import adrive, drive
from langchain_ctxbudget.history.derived import digest_in, key_of
from langchain_ctxbudget.stores import Address, DerivedPlace, InStore, Scope, derived_place
from tests.derived_folder import DerivedFolder, StoreBesideFolder

SCOPE = Scope("ada", "c1")
FIRST = Address(SCOPE, "counts", key_of("d1", "v1"))
SECOND = Address(SCOPE, "counts", "0 texts")
OTHERS = {
    "another kind": Address(SCOPE, "segments", FIRST.key),
    "another conversation": Address(Scope("ada", "c2"), "counts", FIRST.key),
    "a longer id": Address(Scope("ada", "c11"), "counts", FIRST.key),
    "another user": Address(Scope("ada2", "c1"), "counts", FIRST.key),
    "an id with a path": Address(Scope("ada", "../c1"), "counts", FIRST.key),
}
VALUE: dict[str, Any] = {"data": "abc", "numbers": [1, 2.5], "empty": None}


@pytest.fixture(params=["store", "chroma-folder", "folder"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[DerivedPlace]:
    if request.param == "folder":
        yield DerivedFolder(tmp_path)
    elif request.param == "store":
        yield InStore(InMemoryStore())
    else:
        with ChromaStore(tmp_path) as store:
            yield InStore(store)


def kept(place: DerivedPlace, *addresses: Address) -> list[Any]:
    return drive(place.get(addresses))


def keep(place: DerivedPlace, *addresses: Address) -> None:
    drive(place.put(dict.fromkeys(addresses, VALUE)))


def test_a_piece_is_got_as_it_was_put(place: DerivedPlace) -> None:
    keep(place, FIRST)
    assert kept(place, FIRST) == [VALUE]


def test_pieces_come_in_the_order_in_which_they_are_asked_for(place: DerivedPlace) -> None:
    drive(place.put({FIRST: {"n": 1}, SECOND: {"n": 2}}))
    assert kept(place, SECOND, FIRST) == [{"n": 2}, {"n": 1}]


def test_a_piece_that_is_not_there_is_none(place: DerivedPlace) -> None:
    keep(place, FIRST)
    assert kept(place, SECOND, FIRST) == [None, VALUE]


def test_a_piece_of_another_version_is_not_found(place: DerivedPlace) -> None:
    keep(place, FIRST)
    assert kept(place, FIRST._replace(key=key_of("d1", "v2"))) == [None]


def test_a_piece_is_replaced(place: DerivedPlace) -> None:
    keep(place, FIRST)
    drive(place.put({FIRST: {"new": True}}))
    assert kept(place, FIRST) == [{"new": True}]


def test_nothing_is_asked_for(place: DerivedPlace) -> None:
    assert kept(place) == []


def test_a_forgotten_piece_is_gone(place: DerivedPlace) -> None:
    keep(place, FIRST, SECOND)
    drive(place.forget([FIRST]))
    assert kept(place, FIRST, SECOND) == [None, VALUE]


def test_what_is_not_there_is_forgotten_all_the_same(place: DerivedPlace) -> None:
    drive(place.forget([FIRST]))
    assert kept(place, FIRST) == [None]


def test_the_keys_of_a_conversation_are_told(place: DerivedPlace) -> None:
    keep(place, FIRST, SECOND, *OTHERS.values())
    assert sorted(drive(place.keys(SCOPE, "counts"))) == ["0 texts", "d1-v1"]


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
def test_what_stands_beside_it_stays(place: DerivedPlace, other: Address) -> None:
    keep(place, FIRST, other)
    drive(place.forget([FIRST]))
    assert kept(place, FIRST, other) == [None, VALUE]


def test_erasing_a_kind_of_a_user_leaves_nothing_of_it(place: DerivedPlace) -> None:
    keep(place, FIRST, SECOND, OTHERS["another conversation"])
    drive(place.erase("ada", "counts"))
    assert kept(place, FIRST, SECOND, OTHERS["another conversation"]) == [None, None, None]


def test_erasing_tells_how_many_pieces_there_were(place: DerivedPlace) -> None:
    keep(place, FIRST, SECOND, *OTHERS.values())
    assert drive(place.erase("ada", "counts")) == 5
    assert drive(place.erase("ada", "counts")) == 0


@pytest.mark.parametrize("name", ["another kind", "another user"])
def test_erasing_leaves_the_rest(place: DerivedPlace, name: str) -> None:
    keep(place, FIRST, OTHERS[name])
    drive(place.erase("ada", "counts"))
    assert kept(place, OTHERS[name]) == [VALUE]


async def test_the_awaited_form_does_the_same(place: DerivedPlace) -> None:
    await adrive(place.put({FIRST: VALUE}))
    assert await adrive(place.get([FIRST])) == [VALUE]
    await adrive(place.forget([FIRST]))
    assert await adrive(place.keys(SCOPE, "counts")) == []


def test_a_damaged_file_is_as_good_as_missing(tmp_path: Path) -> None:
    place = DerivedFolder(tmp_path)
    keep(place, FIRST)
    [file] = tmp_path.rglob("*.json")
    file.write_text("{", encoding="utf-8")
    assert kept(place, FIRST) == [None]


def test_a_key_tells_its_digest() -> None:
    assert digest_in(key_of("d1", "model/v-2")) == "d1"


def test_a_store_keeps_derived_data_itself() -> None:
    assert isinstance(derived_place(InMemoryStore()), InStore)


def test_a_store_may_name_another_place(tmp_path: Path) -> None:
    store = StoreBesideFolder(tmp_path)
    assert derived_place(store) is store.derived
