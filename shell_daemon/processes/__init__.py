"""The processes of commands: a zygote, supervisors, and the trees below them."""
