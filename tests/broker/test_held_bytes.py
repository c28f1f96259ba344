"""The bytes of small slices, which were read to find the batches, and how many of them a response holds."""

from __future__ import annotations

import os

from sparklog.broker.apis import fetch

PARTITIONS = 120


async def test_a_wide_response_holds_few_bytes_and_all_can_be_read(world, batch) -> None:
    await world.start()
    await world.create("t", partitions=PARTITIONS)
    values = [os.urandom(12_000) for _ in range(PARTITIONS)]
    for number, value in enumerate(values):
        await world.produce("t", batch([value]), number)
    asked = [
        fetch.PartitionFetch(topic="t", partition=number, fetch_offset=0, max_bytes=14_000)
        for number in range(PARTITIONS)
    ]
    answer = await world.broker.serve(fetch.API, fetch.FetchRequest(max_bytes=2 << 20, partitions=asked))
    assert 0 < sum(len(part.slice.data) for part in answer.partitions) <= fetch.HELD_BYTES < answer.size_bytes
    assert all(value in part.slice.read() for value, part in zip(values, answer.partitions, strict=True))


async def test_the_last_records_are_read_with_their_headers_whatever_the_limit(world, batch) -> None:
    await world.start()
    await world.create("t")
    for number in range(200):
        await world.produce("t", batch([b"%d" % number * 100]))
    found = (await world.fetch("t", 199)).slice
    assert found.data == found.file.read_at(found.position, found.size)
    assert b"199" in found.data
    assert b"198" not in found.data
