"""What requests to models may take: their prices, the limits, and the count of each request."""
