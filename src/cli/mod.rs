//! One file per subcommand; wires the other modules together.
