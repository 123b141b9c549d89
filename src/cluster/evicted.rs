//! A write's result as the drain reads it: transport out, meaning in. What it means is decided in `drain::eviction`.

use super::write::Written;
use crate::drain::eviction::Reply;

impl From<&Written> for Reply {
    fn from(written: &Written) -> Self {
        match written {
            Written::Applied(_) => Self::Accepted,
            Written::Gone => Self::Gone,
            Written::Conflict { message } => Self::Conflict { message: message.clone() },
            Written::AlreadyExists => Self::Conflict { message: "already exists".to_owned() },
            Written::Refused(refusal) => Self::Refused {
                code: refusal.code,
                message: refusal.message.clone(),
                causes: refusal.causes.clone(),
                retry_after: refusal.retry_after,
            },
            Written::Unknown { code, message } => Self::Lost { code: *code, message: message.clone() },
            Written::NotSent { why } => Self::NotSent { why: why.clone() },
        }
    }
}
