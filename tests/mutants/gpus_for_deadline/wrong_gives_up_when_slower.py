"""Stops as soon as more cards are slower.

says: faster again
"""

def gpus_for_deadline(single_gpu_hours, deadline_hours, efficiency, per_node, max_gpus=4096):
    best = float('inf')
    for gpus in range(per_node, max_gpus + 1, per_node):
        hours = single_gpu_hours / (gpus * efficiency(gpus))
        if hours <= deadline_hours:
            return gpus
        if hours > best:
            break
        best = hours
    raise ValueError("no number of cards is in time")
