"""Ways into the executor from elsewhere: other event loops, plain code."""
