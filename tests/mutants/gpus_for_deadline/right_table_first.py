"""Times of all sizes first; no max_gpus in its signature."""

import numpy as np


def gpus_for_deadline(single_gpu_hours, deadline_hours, efficiency, per_node):
    gpus = np.arange(per_node, 4097, per_node)
    hours = np.array([single_gpu_hours / int(g) / efficiency(int(g)) for g in gpus])
    good = gpus[hours <= deadline_hours]
    if len(good) == 0:
        raise ValueError("never")
    return good[0]
