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

#[cfg(test)]
mod tests {
    use super::super::error::Refusal;
    use super::*;
    use crate::drain::eviction::{Outcome, classify};

    fn outcome(code: u16, body: serde_json::Value) -> Outcome {
        let refusal = Refusal::read(code, &http::HeaderMap::new(), body.to_string().as_bytes());
        let written = Written::failed(super::super::CallError::Refused { what: String::new(), refusal: Box::new(refusal) });
        classify(&Reply::from(&written))
    }

    #[test]
    fn an_eviction_s_answer_keeps_its_meaning_through_the_rim() {
        let status = |message: &str, causes: serde_json::Value| serde_json::json!({"kind": "Status", "status": "Failure", "reason": "X", "message": message, "details": {"causes": causes}});
        let budget = serde_json::json!([{"reason": "DisruptionBudget", "message": "needs 2 healthy pods and has 2 currently"}]);
        let table = [
            (429, status("Cannot evict pod", budget.clone()), "Budget"),
            (403, status("negative", budget), "Budget"),
            (429, status("slow down", serde_json::json!([])), "Throttled"),
            (403, status("terminating", serde_json::json!([{"reason": "NamespaceTerminating"}])), "NamespaceTerminating"),
            (500, status("This pod has more than one PodDisruptionBudget, which ...", serde_json::json!([])), "TwoBudgets"),
            (500, status("failed calling webhook \"x\"", serde_json::json!([])), "Webhook"),
            (
                409,
                status("Precondition failed: UID in precondition: a, UID in object meta: b", serde_json::json!([])),
                "Replaced",
            ),
            (
                409,
                status(
                    "the ResourceVersion in the precondition (7) does not match the ResourceVersion in record (8). The object might have been modified",
                    serde_json::json!([]),
                ),
                "Changed",
            ),
            (404, status("pods \"x\" not found", serde_json::json!([])), "Gone"),
            (504, status("timeout", serde_json::json!([])), "Unknown"),
        ];
        for (code, body, word) in table {
            assert_eq!(outcome(code, body.clone()).word(), word, "{code} {body}");
        }
        assert_eq!(classify(&Reply::from(&Written::Applied(None))), Outcome::Accepted);
    }
}
