"""The first number in time is rounded up to nodes.

says: try whole nodes only
"""

def gpus_for_deadline(single_gpu_hours, deadline_hours, efficiency, per_node, max_gpus=4096):
    for gpus in range(1, max_gpus + 1):
        if single_gpu_hours / (gpus * efficiency(gpus)) <= deadline_hours:
            return -(-gpus // per_node) * per_node
    raise ValueError("no number of cards is in time")
