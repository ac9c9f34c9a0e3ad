"""Raw inputs as tensors: tokens, images and point clouds."""
