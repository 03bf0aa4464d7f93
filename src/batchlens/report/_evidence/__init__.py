"""The paper's claims on real networks: what the sweeps of an evidence folder say."""
