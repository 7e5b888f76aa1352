"""Whether something may go out: the policy, its limits, questions to people, and the record."""
