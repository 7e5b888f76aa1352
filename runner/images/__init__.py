"""The images that guests run from in the container tiers: building, saving, loading them."""
