//! What this user may do, asked of the API server: a console takes the Lease only when every verb of the engine is allowed.

use futures::{StreamExt, TryStreamExt};
use serde_json::{Value, json};

use super::{CallError, Cluster, call::Call};
use crate::api::access::{Role, Rule, Scope, rules};

/// A permission that is missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denied {
    pub verb: &'static str,
    /// `pods/eviction`, `nodehandoffs.lockkeeper.dev`.
    pub resource: String,
    /// Empty: cluster-wide.
    pub namespace: &'static str,
    /// What it is needed for.
    pub why: &'static str,
}

impl std::fmt::Display for Denied {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.verb, self.resource)?;
        if self.namespace.is_empty() { Ok(()) } else { write!(f, " in {}", self.namespace) }
    }
}

/// How many reviews are under way at once.
const AT_ONCE: usize = 8;

/// What of a role's table this user may not do, in the table's order. Reviews are allowed in read-only mode too.
///
/// # Errors
/// The server does not answer a review.
pub async fn missing(cluster: &Cluster, role: Role) -> Result<Vec<Denied>, CallError> {
    let questions = rules(role).flat_map(|rule| {
        rule.resources.iter().flat_map(move |resource| rule.verbs.iter().map(move |verb| (rule, *resource, *verb)))
    });
    let answers: Vec<Option<Denied>> = futures::stream::iter(questions)
        .map(|(rule, resource, verb)| async move {
            Ok::<_, CallError>((!allowed(cluster, rule, resource, verb).await?).then(|| denied(rule, resource, verb)))
        })
        .buffered(AT_ONCE)
        .try_collect()
        .await?;
    Ok(answers.into_iter().flatten().collect())
}

async fn allowed(cluster: &Cluster, rule: &Rule, resource: &str, verb: &str) -> Result<bool, CallError> {
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {
            "group": rule.group, "resource": resource, "subresource": subresource, "verb": verb, "namespace": namespace(rule),
            "name": rule.names.first().copied().unwrap_or_default(),
        }},
    });
    let answer = cluster.json(Call::post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", &review)).await?;
    Ok(answer.pointer("/status/allowed").and_then(Value::as_bool).unwrap_or(false))
}

fn namespace(rule: &Rule) -> &'static str {
    match rule.scope {
        Scope::Cluster => "",
        Scope::Namespace(namespace) => namespace,
    }
}

fn denied(rule: &Rule, resource: &str, verb: &'static str) -> Denied {
    let resource = match resource.split_once('/') {
        _ if rule.group.is_empty() => resource.to_owned(),
        Some((resource, subresource)) => format!("{resource}.{}/{subresource}", rule.group),
        None => format!("{resource}.{}", rule.group),
    };
    Denied { verb, resource, namespace: namespace(rule), why: rule.why }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::testing::{Answer, cluster};

    #[tokio::test(start_paused = true)]
    async fn missing_verbs_are_named_and_read_only_may_ask() {
        let (cluster, heard) = cluster(true, |asked| {
            let asks = asked.body.pointer("/spec/resourceAttributes").unwrap();
            let allowed = asks["subresource"] != "eviction" && !(asks["resource"] == "leases" && asks["verb"] == "patch");
            Answer::Json(201, json!({"status": {"allowed": allowed}}))
        });
        let missing: Vec<String> = missing(&cluster, Role::Reconciler).await.unwrap().iter().map(ToString::to_string).collect();
        assert_eq!(missing, ["create pods/eviction", "patch leases.coordination.k8s.io in lockkeeper-system"]);
        assert!(heard.all().len() > 30);
    }
}
