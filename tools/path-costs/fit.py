"""Least squares with costs that are not negative."""

import math


def solved(matrix, right):
    """Solves a symmetric positive definite system by Cholesky's method."""
    size = len(right)
    lower = [[0.0] * size for _ in range(size)]
    for i in range(size):
        row = lower[i]
        for j in range(i + 1):
            other = lower[j]
            rest = matrix[i][j] - sum(row[k] * other[k] for k in range(j))
            row[j] = math.sqrt(rest) if i == j else rest / other[j]
    forward = []
    for i in range(size):
        forward.append((right[i] - sum(lower[i][k] * forward[k] for k in range(i))) / lower[i][i])
    result = [0.0] * size
    for i in reversed(range(size)):
        result[i] = (forward[i] - sum(lower[k][i] * result[k] for k in range(i + 1, size))) / lower[i][i]
    return result


def normal_equations(rows):
    """The normal equations of rows: counts, a sum, and the weight of the sum's relative error."""
    size = len(rows[0][0])
    matrix, right = [[0.0] * size for _ in range(size)], [0.0] * size
    for counts, total, own_weight in rows:
        weight = own_weight / (total + 1000) ** 2
        present = [(column, count) for column, count in enumerate(counts) if count]
        for column, count in present:
            right[column] += weight * count * total
            line = matrix[column]
            for other, other_count in present:
                line[other] += weight * count * other_count
    return matrix, right


def non_negative(rows, ridge=1e-8):
    """Lawson and Hanson's method: the costs, at least 0, that fit the rows best. `ridge` decides between columns that
    always occur together."""
    matrix, right = normal_equations(rows)
    scale = [math.sqrt(matrix[i][i]) or 1.0 for i in range(len(right))]
    size = len(right)
    matrix = [[matrix[i][j] / scale[i] / scale[j] + (ridge if i == j else 0) for j in range(size)] for i in range(size)]
    right = [right[i] / scale[i] for i in range(size)]
    costs, chosen = [0.0] * size, []
    while True:
        gradient = [right[i] - sum(matrix[i][j] * costs[j] for j in chosen) for i in range(size)]
        candidates = [i for i in range(size) if i not in chosen and gradient[i] > 1e-7]
        if not candidates:
            return [cost / scale[i] for i, cost in enumerate(costs)]
        chosen.append(max(candidates, key=gradient.__getitem__))
        while True:
            tried = solved([[matrix[i][j] for j in chosen] for i in chosen], [right[i] for i in chosen])
            if min(tried) > 0:
                for i, cost in zip(chosen, tried):
                    costs[i] = cost
                break
            # As far towards the solution as no cost becomes negative.
            steps = [costs[i] / (costs[i] - cost) for i, cost in zip(chosen, tried) if cost <= 0]
            step = min(steps)
            for i, cost in zip(chosen, tried):
                costs[i] += step * (cost - costs[i])
            chosen = [i for i in chosen if costs[i] > 1e-12]
            costs = [cost if i in chosen else 0.0 for i, cost in enumerate(costs)]
