"""Forgets to return.

says: return
"""

import rankzero


def measured_peak(step):
    before = rankzero.live_bytes()
    step()
    peak = rankzero.live_bytes() - before
