"""The broker: takes messages in, keeps them, hands them out, and looks after who consumes what."""
