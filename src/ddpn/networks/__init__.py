"""Networks that predict the parameters of count distributions: backbones, heads and training."""
