"""What an operator and a user type."""
