"""What entities are asked to be: descriptions, the limits of every profile, and the catalog that stores them."""
