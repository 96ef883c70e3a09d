"""Only doublings of a node.

says: only doublings
"""

def gpus_for_deadline(single_gpu_hours, deadline_hours, efficiency, per_node, max_gpus=4096):
    gpus = per_node
    while gpus <= max_gpus:
        if single_gpu_hours / (gpus * efficiency(gpus)) <= deadline_hours:
            return gpus
        gpus *= 2
    raise ValueError("no number of cards is in time")
