"""Reads the indexes of Protobuf's messages behind the ids of their schemas, in a compiled loop."""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from sparklog.records.kernels import byte_at, kernel

KEY_BYTES = 16
"""Bytes for the indexes of a row; the last byte is their size. Indexes of more than 15 bytes are not read."""


@kernel
def read_indexes(data, starts, ends, keys):
    """Copy the indexes that begin at `starts`. A row without indexes gets the size 0.

    keys: uint8[rows, KEY_BYTES], all set to 0
    """
    for row in range(starts.shape[0]):
        position = starts[row]
        size = min(ends[row] - position, KEY_BYTES - 1)
        left = -1  # numbers to read; before the first their count
        count = 0
        shift = 0
        used = 0
        while used < size and left != 0 and shift < 21:
            byte = byte_at(data, position + used)
            used += 1
            if left < 0:
                count |= (byte & 127) << shift
                shift += 7
            if byte < 128:
                left = (count >> 1) if left < 0 else left - 1
        if left != 0 or count & 1:
            continue
        for i in range(used):
            keys[row, i] = byte_at(data, position + i)
        keys[row, KEY_BYTES - 1] = used
