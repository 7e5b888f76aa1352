"""What the guest tells the runner of what happens in it."""
