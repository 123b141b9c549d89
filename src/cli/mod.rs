//! The command line: arguments, one file per subcommand, exit codes.

pub mod manifests;
