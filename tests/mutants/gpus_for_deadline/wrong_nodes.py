"""Nodes are returned.

says: those are nodes
"""

def gpus_for_deadline(single_gpu_hours, deadline_hours, efficiency, per_node, max_gpus=4096):
    for gpus in range(per_node, max_gpus + 1, per_node):
        if single_gpu_hours / (gpus * efficiency(gpus)) <= deadline_hours:
            return gpus // per_node
    raise ValueError("no number of cards is in time")
