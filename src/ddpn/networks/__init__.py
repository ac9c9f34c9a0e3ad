"""Neural networks that predict count distributions: backbones, heads and training."""
