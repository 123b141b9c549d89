//! The gate of read-only mode: no request that changes anything leaves this process, except reviews of one's own rights.

use super::request::Target;

/// Refused before it was sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("read-only: {verb} of {object} was not sent; start without --read-only to change anything")]
pub struct ReadOnly {
    pub verb: &'static str,
    pub object: String,
}

/// Judged by method alone, not by what the server would store: a dry run is refused too, since webhooks may act on it.
pub fn check(target: &Target) -> Result<(), ReadOnly> {
    if target.verb.changes_something() && !target.is_self_review() {
        return Err(ReadOnly { verb: target.verb.as_str(), object: target.object_word() });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;

    #[test]
    fn only_reads_and_self_reviews_pass() {
        let passes = |method: &Method, uri: &str| check(&Target::of(method, &uri.parse().unwrap())).is_ok();
        assert!(passes(&Method::GET, "/api/v1/pods?watch=true"));
        assert!(passes(&Method::POST, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"));
        assert!(passes(&Method::POST, "/apis/authentication.k8s.io/v1/selfsubjectreviews"));
        for method in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::OPTIONS] {
            assert!(!passes(&method, "/api/v1/namespaces/ns/pods/p"), "{method}");
            assert!(!passes(&method, "/api/v1/namespaces/ns/pods/p/eviction?dryRun=All"), "{method}");
        }
        assert!(!passes(&Method::POST, "/apis/authorization.k8s.io/v1/subjectaccessreviews"));
        assert!(!passes(&Method::POST, "/api/v1/namespaces/ns/pods?watch=true"));
    }
}
