"""A program that a test waits for in vain is ended, with all that it has started."""

from __future__ import annotations

import pytest

from support.patience import PATIENCE_S
from support.processes import output


@pytest.mark.slow
def test_a_program_that_hangs_ends_with_what_holds_its_output_open() -> None:
    """Nothing would come of reading on until the program's own child has ended, too."""
    with pytest.raises(AssertionError, match="does not end"):
        output.run(["sh", "-c", f"sleep {10 * PATIENCE_S}; true"], patience_s=0.2)
