"""Read and write files and folders, and lock them."""
