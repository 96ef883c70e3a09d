"""A generator expression, speed-up against need."""

def gpus_for_deadline(single_gpu_hours, deadline_hours, efficiency, per_node, max_gpus=4096):
    nodes = range(1, max_gpus // per_node + 1)
    fits = (n * per_node for n in nodes if n * per_node * efficiency(n * per_node) >= single_gpu_hours / deadline_hours)
    answer = next(fits, None)
    if answer is None:
        raise ValueError(f"not within {max_gpus} cards")
    return answer
