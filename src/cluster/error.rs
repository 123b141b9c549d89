//! How a request to an API server can fail, as one type. Kinds are stable words for metrics; texts say what was tried and what to do.

use std::{fmt, time::Duration};

use kube::core::Status;

use super::{credentials::NotAccepted, read_only::ReadOnly};

/// A request that did not succeed. The text has no cluster name: whoever reports it says which cluster it was.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// Not sent: this process only reads.
    #[error(transparent)]
    ReadOnly(#[from] ReadOnly),
    /// The server answered with an error.
    #[error("{what}: {refusal}")]
    Refused { what: String, refusal: Box<Refusal> },
    /// The server does not accept our credentials. Nothing was done.
    #[error("{what}: {why}")]
    NotAccepted { what: String, why: NotAccepted },
    /// No answer in time. A write may have been applied all the same.
    #[error("{what}: no answer within {}", seconds(.limit))]
    TimedOut { what: String, limit: Duration },
    /// No connection, or it broke. A write may have been applied all the same.
    #[error("{what}: {why}")]
    Transport { what: String, why: String },
    /// The answer is not what the API promises.
    #[error("{what}: the answer does not decode: {why}")]
    Undecodable { what: String, why: String },
}

impl CallError {
    /// A stable word.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::ReadOnly(_) => "ReadOnly",
            Self::Refused { refusal, .. } => refusal.class().word(),
            Self::NotAccepted { .. } => "NotAccepted",
            Self::TimedOut { .. } => "TimedOut",
            Self::Transport { .. } => "Transport",
            Self::Undecodable { .. } => "Undecodable",
        }
    }

    /// The HTTP status, if there was one.
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::NotAccepted { .. } => Some(401),
            _ => self.refusal().map(|refusal| refusal.code),
        }
    }

    pub fn refusal(&self) -> Option<&Refusal> {
        match self {
            Self::Refused { refusal, .. } => Some(refusal),
            _ => None,
        }
    }

    pub fn is_not_found(&self) -> bool {
        self.code() == Some(404)
    }

    /// The resourceVersion or continue token is too old: list again.
    pub fn is_expired(&self) -> bool {
        self.code() == Some(410)
    }

    pub fn is_forbidden(&self) -> bool {
        self.code() == Some(403)
    }
}

fn seconds(limit: &Duration) -> String {
    format!("{} s", limit.as_secs_f32())
}

/// What a server says when it does not do what was asked: the parts of its `Status` that decisions rest on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Refusal {
    /// HTTP status.
    pub code: u16,
    /// `status.reason`, a word such as `Forbidden`; empty when the answer was no Status.
    pub reason: String,
    pub message: String,
    /// (reason, message) of `status.details.causes`.
    pub causes: Vec<(String, String)>,
    /// `Retry-After`, or `details.retryAfterSeconds`.
    pub retry_after: Option<Duration>,
}

/// What a refusal means for whoever decides what to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RefusalClass {
    /// 429 with cause `DisruptionBudget`: a PodDisruptionBudget does not allow the eviction now.
    DisruptionBudget,
    /// 500 on an eviction: more than one PodDisruptionBudget selects the pod. Permanent until a person changes that.
    SeveralBudgets,
    /// 429 without that cause: the server asks to slow down.
    Throttled,
    /// 401, 403: missing permission, or an admission policy, or a terminating namespace.
    Forbidden,
    NamespaceTerminating,
    /// 400, 422: the object is not legal.
    Invalid,
    Conflict,
    AlreadyExists,
    NotFound,
    Expired,
    /// 5xx, 408: the outcome is unknown.
    ServerError,
    Other,
}

impl RefusalClass {
    pub fn word(self) -> &'static str {
        match self {
            Self::DisruptionBudget => "DisruptionBudget",
            Self::SeveralBudgets => "SeveralBudgets",
            Self::Throttled => "Throttled",
            Self::Forbidden => "Forbidden",
            Self::NamespaceTerminating => "NamespaceTerminating",
            Self::Invalid => "Invalid",
            Self::Conflict => "Conflict",
            Self::AlreadyExists => "AlreadyExists",
            Self::NotFound => "NotFound",
            Self::Expired => "Expired",
            Self::ServerError => "ServerError",
            Self::Other => "Other",
        }
    }
}

impl Refusal {
    /// From an error response. The header wins over the body's wish; a body that is no Status keeps its first line as message.
    pub fn read(code: u16, headers: &http::HeaderMap, body: &[u8]) -> Self {
        let header = headers.get(http::header::RETRY_AFTER).and_then(|v| v.to_str().ok()).and_then(|v| v.trim().parse().ok());
        let status: Option<Status> = serde_json::from_slice(body).ok();
        let mut refusal = match status {
            Some(status) if !status.message.is_empty() || !status.reason.is_empty() => Self::from_status(status),
            _ => {
                let text = String::from_utf8_lossy(body);
                let line: String =
                    text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default().trim().chars().take(300).collect();
                Self { message: line, ..Self::default() }
            }
        };
        refusal.code = code;
        if let Some(seconds) = header {
            refusal.retry_after = Some(Duration::from_secs(seconds));
        }
        refusal
    }

    pub fn from_status(status: Status) -> Self {
        let details = status.details.unwrap_or_else(|| kube::core::response::StatusDetails {
            name: String::new(),
            group: String::new(),
            kind: String::new(),
            uid: String::new(),
            causes: Vec::new(),
            retry_after_seconds: 0,
        });
        Self {
            code: status.code,
            reason: status.reason,
            message: status.message,
            causes: details.causes.into_iter().map(|cause| (cause.reason, cause.message)).collect(),
            retry_after: (details.retry_after_seconds > 0).then(|| Duration::from_secs(details.retry_after_seconds.into())),
        }
    }

    pub fn class(&self) -> RefusalClass {
        let caused_by = |word: &str| self.causes.iter().any(|(reason, _)| reason == word);
        match self.code {
            429 if caused_by("DisruptionBudget") => RefusalClass::DisruptionBudget,
            429 => RefusalClass::Throttled,
            // The handler in the server has no better status for it (registry/core/pod/storage/eviction.go).
            500 if self.message.contains("more than one PodDisruptionBudget") => RefusalClass::SeveralBudgets,
            403 if caused_by("NamespaceTerminating") => RefusalClass::NamespaceTerminating,
            401 | 403 => RefusalClass::Forbidden,
            404 => RefusalClass::NotFound,
            409 if self.reason == "AlreadyExists" => RefusalClass::AlreadyExists,
            409 => RefusalClass::Conflict,
            410 => RefusalClass::Expired,
            400 | 405 | 413 | 415 | 422 => RefusalClass::Invalid,
            408 | 500.. => RefusalClass::ServerError,
            _ => RefusalClass::Other,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.code)?;
        if !self.reason.is_empty() {
            write!(f, " {}", self.reason)?;
        }
        if !self.message.is_empty() {
            write!(f, ": {}", self.message)?;
        }
        for (_, message) in
            self.causes.iter().filter(|(_, message)| !message.is_empty() && !self.message.contains(message.as_str()))
        {
            write!(f, " ({message})")?;
        }
        Ok(())
    }
}

/// Every cause in a chain, in one line: transport errors say nothing at their outermost level.
pub(super) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let part = error.to_string();
        if !text.contains(&part) {
            text = format!("{text}: {part}");
        }
        source = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(code: u16, body: serde_json::Value) -> Refusal {
        Refusal::read(code, &http::HeaderMap::new(), body.to_string().as_bytes())
    }

    #[test]
    fn a_blocked_eviction_is_no_throttling() {
        let blocked = read(
            429,
            serde_json::json!({"kind": "Status", "status": "Failure", "reason": "TooManyRequests", "code": 429,
                "message": "Cannot evict pod as it would violate the pod's disruption budget.",
                "details": {"causes": [{"reason": "DisruptionBudget", "message": "The disruption budget db needs 2 healthy pods and has 2 currently"}]}}),
        );
        assert_eq!(blocked.class(), RefusalClass::DisruptionBudget);
        assert!(blocked.to_string().contains("needs 2 healthy pods"));
        let throttled =
            read(429, serde_json::json!({"kind": "Status", "reason": "TooManyRequests", "details": {"retryAfterSeconds": 3}}));
        assert_eq!((throttled.class(), throttled.retry_after), (RefusalClass::Throttled, Some(Duration::from_secs(3))));
    }

    #[test]
    fn answers_that_are_no_status_keep_their_text() {
        let mut headers = http::HeaderMap::new();
        headers.insert("retry-after", "7".parse().unwrap());
        let refusal = Refusal::read(503, &headers, b"\nupstream connect error\nmore");
        assert_eq!((refusal.message.as_str(), refusal.class()), ("upstream connect error", RefusalClass::ServerError));
        assert_eq!(refusal.retry_after, Some(Duration::from_secs(7)));
        assert_eq!(Refusal::read(409, &headers, b"").class(), RefusalClass::Conflict);
    }
}
