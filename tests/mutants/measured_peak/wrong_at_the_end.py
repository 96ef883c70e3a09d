"""Measures when the step is over.

says: when the step is over
"""

import rankzero


def measured_peak(step):
    before = rankzero.live_bytes()
    step()
    return rankzero.live_bytes() - before
