"""A group with an id is queued once."""

from tests.atropos_api.service import Api, group, number_of


async def drained(api: Api) -> list[int]:
    numbers = []
    while (batch := await api.batch()) is not None:
        numbers += [number_of(each) for each in batch]
    return sorted(numbers)


async def test_a_group_sent_again_is_counted_as_received_and_kept_once(api: Api) -> None:
    await api.register(batch_size=4)
    assert await api.post("/scored_data", group(1)) == {"status": "received"}
    assert await api.post("/scored_data", group(1)) == {"status": "received", "duplicate": True}
    await api.restart()
    assert await api.post("/scored_data", group(1)) == {"status": "received", "duplicate": True}
    assert await drained(api) == [1]
    await api.restart()
    assert (await api.post("/scored_data", group(1)))["duplicate"] is True
    assert await drained(api) == []


async def test_a_list_may_hold_old_and_new_groups(api: Api) -> None:
    await api.register(batch_size=4)
    sent = [group(1), group(2)]
    assert await api.post("/scored_data_list", sent) == {"status": "received", "groups_processed": 2}
    answer = await api.post("/scored_data_list", [*sent, group(3), group(3), group(4, group_id=None)])
    assert answer == {"status": "received", "groups_processed": 5, "duplicates": 3}
    assert await api.post("/scored_data_list", []) == {"status": "received", "groups_processed": 0}
    assert await drained(api) == [1, 2, 3, 4]


async def test_the_first_of_several_with_an_id_is_kept(api: Api) -> None:
    await api.register(batch_size=4)
    await api.post("/scored_data", group(1))
    await api.post("/scored_data", group(2, group_id=group(1)["group_id"]))
    assert await drained(api) == [1]


async def test_senders_without_ids_are_served_as_ever(api: Api) -> None:
    await api.register(batch_size=4)
    for _ in range(2):
        assert await api.post("/scored_data", group(1, group_id=None)) == {"status": "received"}
    assert await drained(api) == [1, 1]


async def test_a_trainer_sees_the_ids_of_groups_that_have_one(api: Api) -> None:
    await api.register()
    nameless = group(2)
    del nameless["group_id"]
    # The same rows twice: each keeps its own name.
    await api.post("/scored_data_list", [group(1), group(1, group_id="another")])
    batch = await api.batch()
    assert batch is not None
    assert [each.get("group_id") for each in batch] == ["run/g000001", "another"]
    await api.post("/scored_data_list", [nameless, nameless])
    batch = await api.batch()
    assert batch is not None
    assert all("group_id" not in each for each in batch)


async def test_a_reset_empties_the_queue_and_forgets_ids(api: Api) -> None:
    await api.register(batch_size=4)
    await api.post("/scored_data_list", [group(1), group(2)])
    await api.batch()
    assert (await api.http.get("/reset_data")).text == "Reset successful"
    assert (await api.get("/batch"))["batch"] == []
    await api.restart()
    assert await api.get("/status") == {"current_step": 0, "queue_size": 0}
    assert (await api.get("/batch"))["batch"] == []
    await api.register(batch_size=4)
    assert await drained(api) == []
    assert await api.post("/scored_data", group(1)) == {"status": "received"}
    assert await drained(api) == [1]
