"""Training real networks: data, models, workloads, optimizers and one loop that counts steps to a target."""
