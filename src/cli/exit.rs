//! How a command ends: the exit codes, and failures that say what was tried, on what, and what to do.

use std::process::ExitCode;

/// The exit codes, and nothing else ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    Done = 0,
    /// Some of what was asked for is not done, or failed.
    NotAllDone = 1,
    /// Wrong arguments, no cluster, no permission.
    Environment = 2,
    /// Preflight says that it would not work.
    Refused = 3,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// Why a command ended without doing what it was asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// Arguments that make no sense together or name what is not there.
    #[error("{0}")]
    Usage(String),
    /// The cluster, the kubeconfig, a file or a permission.
    #[error("{0}")]
    Environment(String),
    #[error("{0}")]
    Refused(String),
    #[error("{0}")]
    NotAllDone(String),
}

impl Failure {
    pub fn usage(text: impl Into<String>) -> Self {
        Self::Usage(text.into())
    }

    pub fn environment(text: impl Into<String>) -> Self {
        Self::Environment(text.into())
    }

    pub fn exit(&self) -> Exit {
        match self {
            Self::Usage(_) | Self::Environment(_) => Exit::Environment,
            Self::Refused(_) => Exit::Refused,
            Self::NotAllDone(_) => Exit::NotAllDone,
        }
    }
}
