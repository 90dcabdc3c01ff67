"""Labels from a column of the sample: as it is (0 or 1), by a threshold, or by equality."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from experiments.experiment import ColumnLabel
from preprocess.contracts import Float32

Bools = np.ndarray[tuple[int], np.dtype[np.bool_]]


def label_of(column: pa.Array, rule: ColumnLabel) -> tuple[Float32, Bools]:
    """(labels [N] float32, usable [N] bool). Where not usable (null, NaN, outside ``range``, or not 0 or 1 without a rule)
    the label is 0 and means nothing."""
    valid = column.is_valid().to_numpy(zero_copy_only=False)
    if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
        equal = pc.fill_null(pc.equal(column, pa.scalar(str(rule.equals)).cast(column.type)), False)
        return equal.to_numpy(zero_copy_only=False).astype(np.float32), valid
    filler = False if pa.types.is_boolean(column.type) else 0
    values = column.fill_null(filler).to_numpy(zero_copy_only=False)
    usable = valid & np.isfinite(values.astype(np.float64))
    if rule.range is not None:
        usable &= (values >= rule.range[0]) & (values <= rule.range[1])
    if rule.at_least is not None:
        labels = values >= rule.at_least
    elif rule.equals is not None:
        labels = values == rule.equals
    else:
        labels = values == 1
        usable &= (values == 0) | (values == 1)
    return np.where(usable, labels, False).astype(np.float32), usable


def expected_text(rule: ColumnLabel) -> str:
    """What a label must be, for people."""
    if rule.range is not None:
        return f"a number in [{rule.range[0]:g}, {rule.range[1]:g}]"
    return "0 or 1" if rule.at_least is None and rule.equals is None else "a value that is not null"
