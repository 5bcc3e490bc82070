"""What a program says about itself: its log lines and its metrics."""
