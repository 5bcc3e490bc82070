"""What tests of Gantry, and of programs that use it, run on: a clock without waiting, and more."""
