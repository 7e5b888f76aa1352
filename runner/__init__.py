"""The host side: provisions workspaces, starts guests in a tier, keeps them running."""
