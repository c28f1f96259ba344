"""The output of decoders of keys and values: rows of a column in pieces, with their faults."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sparklog.schemas import column_kernels as kernels


class DecodedPiece(NamedTuple):
    """Decoded rows of a column."""

    first: int
    """The number of rows of the column before these."""
    values: pa.Array
    faults: NDArray[np.uint8]
    """0 for rows that are not malformed."""
    reasons: Mapping[int, str]
    """Specific reasons of faults, by the number of the row in the column; other faults have a general one."""

    def explain(self, row: int) -> str:
        """Return the reason why a row is malformed, given its number in the piece."""
        return self.reasons.get(self.first + row) or kernels.FAULTS[int(self.faults[row])]

    def slice(self, start: int, rows: int) -> DecodedPiece:
        """Return `rows` rows from `start` on."""
        return DecodedPiece(
            self.first + start, self.values.slice(start, rows), self.faults[start : start + rows], self.reasons
        )


class Decoder(Protocol):
    """Decodes the keys or the values of a topic."""

    type: pa.DataType

    def decode(self, column: pa.Array, headers: pa.Array | None) -> Iterator[DecodedPiece]:
        """Yield the rows of a binary column, in order, in as many pieces as memory demands."""
        ...
