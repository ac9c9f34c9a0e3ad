"""Networks that emit the parameters of count distributions: heads, backbones and their training."""
