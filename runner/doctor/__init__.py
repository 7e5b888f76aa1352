"""What `runner doctor` looks at: small checks that change nothing and start nothing lasting."""
