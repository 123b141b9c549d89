//! Who may do what, from the stored roles and bindings. Off unless the config asks for it; reviews answer by it in any case.

use std::sync::Arc;

use serde_json::{Value, json};

use super::call::{Call, Identity};
use super::refusal::Refusal;
use super::state::State;
use super::store::Stored;
use super::write::meta_str;

/// One question: may they?
#[derive(Debug, Clone, Copy)]
pub struct Ask<'a> {
    pub verb: &'a str,
    pub group: &'a str,
    pub resource: &'a str,
    pub sub: &'a str,
    pub namespace: &'a str,
    pub name: &'a str,
}

/// The rules that one binding gives to its subjects; cluster-wide when the namespace is empty.
#[derive(Debug, Clone)]
struct Grant {
    /// As reviews name it: `RoleBinding "b/ns" of Role "r"`.
    name: String,
    subjects: Vec<(String, String)>,
    namespace: String,
    rules: Vec<Value>,
}

#[derive(Debug, Default)]
pub struct Rbac {
    enforced: bool,
    grants: Option<Arc<Vec<Grant>>>,
}

impl Rbac {
    pub fn new(enforced: bool) -> Self {
        Self { enforced, grants: None }
    }
    /// Roles or bindings have changed.
    pub fn forget(&mut self) {
        self.grants = None;
    }
    pub fn enforce(&mut self, on: bool) {
        self.enforced = on;
    }
}

fn list_has(rule: &Value, field: &str, wanted: &str) -> bool {
    let list = rule.get(field).and_then(Value::as_array);
    list.is_some_and(|l| l.iter().filter_map(Value::as_str).any(|x| x == "*" || x == wanted))
}

fn rule_allows(rule: &Value, ask: &Ask<'_>) -> bool {
    let resource = if ask.sub.is_empty() { ask.resource.to_owned() } else { format!("{}/{}", ask.resource, ask.sub) };
    let any_sub = format!("*/{}", ask.sub);
    let resource_ok = list_has(rule, "resources", &resource) || (!ask.sub.is_empty() && list_has(rule, "resources", &any_sub));
    let names = rule.get("resourceNames").and_then(Value::as_array).filter(|n| !n.is_empty());
    let name_ok = names.is_none_or(|n| n.iter().any(|x| x.as_str() == Some(ask.name)));
    list_has(rule, "verbs", ask.verb) && list_has(rule, "apiGroups", ask.group) && resource_ok && name_ok
}

fn subjects(binding: &Value) -> Vec<(String, String)> {
    let list = binding.get("subjects").and_then(Value::as_array);
    list.into_iter()
        .flatten()
        .map(|s| {
            let text = |f: &str| s.get(f).and_then(Value::as_str).unwrap_or_default();
            match text("kind") {
                "ServiceAccount" => ("User".to_owned(), format!("system:serviceaccount:{}:{}", text("namespace"), text("name"))),
                kind => (kind.to_owned(), text("name").to_owned()),
            }
        })
        .collect()
}

impl State {
    fn grants(&mut self) -> Arc<Vec<Grant>> {
        if let Some(grants) = &self.rbac.grants {
            return grants.clone();
        }
        let all = |plural: &str| -> Vec<Arc<Stored>> {
            let resource = self.registry.find("rbac.authorization.k8s.io", "v1", plural);
            resource.map(|r| self.table(r).objects.values().cloned().collect()).unwrap_or_default()
        };
        let rules_of = |binding: &Value, namespace: &str| -> Vec<Value> {
            let reference = binding.get("roleRef").cloned().unwrap_or_default();
            let name = reference.get("name").and_then(Value::as_str).unwrap_or_default();
            let role = match reference.get("kind").and_then(Value::as_str) {
                Some("Role") => self.lookup("rbac.authorization.k8s.io", "roles", namespace, name),
                _ => self.lookup("rbac.authorization.k8s.io", "clusterroles", "", name),
            };
            role.and_then(|r| r.value.get("rules").and_then(Value::as_array).cloned()).unwrap_or_default()
        };
        let mut out = Vec::new();
        for binding in all("clusterrolebindings").iter().chain(&all("rolebindings")) {
            let namespace = meta_str(&binding.value, "namespace").to_owned();
            let reference = binding.value.get("roleRef").cloned().unwrap_or_default();
            let text = |field: &str| reference.get(field).and_then(Value::as_str).unwrap_or_default();
            let own = meta_str(&binding.value, "name");
            let (kind, own) = match namespace.as_str() {
                "" => ("ClusterRoleBinding", own.to_owned()),
                ns => ("RoleBinding", format!("{own}/{ns}")),
            };
            let name = format!("{kind} {own:?} of {} {:?}", text("kind"), text("name"));
            out.push(Grant { name, subjects: subjects(&binding.value), rules: rules_of(&binding.value, &namespace), namespace });
        }
        let out = Arc::new(out);
        self.rbac.grants = Some(out.clone());
        out
    }

    /// May this identity do it?
    pub fn may(&mut self, who: &Identity, ask: &Ask<'_>) -> bool {
        self.reason(who, ask).is_some()
    }

    /// Why this identity may do it: empty for those who may do all, `None` if it may not.
    pub(super) fn reason(&mut self, who: &Identity, ask: &Ask<'_>) -> Option<String> {
        if !self.rbac.enforced || who.groups.iter().any(|g| g == "system:masters") {
            return Some(String::new());
        }
        let grants = self.grants();
        grants
            .iter()
            .filter(|grant| grant.namespace.is_empty() || grant.namespace == ask.namespace)
            .filter(|grant| grant.rules.iter().any(|r| rule_allows(r, ask)))
            .find_map(|grant| {
                let (kind, name) = subject_of(grant, who)?;
                Some(format!("RBAC: allowed by {} to {kind} {name:?}", grant.name))
            })
    }

    pub(super) fn rules_of(&mut self, who: &Identity) -> Vec<Value> {
        if !self.rbac.enforced || who.groups.iter().any(|g| g == "system:masters") {
            return vec![json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]})];
        }
        let grants = self.grants();
        grants.iter().filter(|g| is_subject(g, who)).flat_map(|g| g.rules.clone()).collect()
    }

    pub(super) fn rbac_check(&mut self, call: &Call) -> Result<(), Refusal> {
        // Reviews of oneself are anybody's.
        if !self.rbac.enforced || (call.resource.has.create_only && call.resource.kind.starts_with("Self")) {
            return Ok(());
        }
        // A list of one name asks for that name.
        let selected = match call.name.is_empty() {
            true => super::select::only_name(call.query.get("fieldSelector")),
            false => None,
        };
        let ask = Ask {
            verb: call.verb.as_str(),
            group: &call.resource.group,
            resource: &call.resource.plural,
            sub: &call.sub,
            namespace: &call.namespace,
            name: selected.as_deref().unwrap_or(&call.name),
        };
        if self.may(&call.who, &ask) {
            return Ok(());
        }
        let sub = if call.sub.is_empty() { String::new() } else { format!("/{}", call.sub) };
        let scope = match (call.resource.namespaced, call.namespace.as_str()) {
            (true, ns) if !ns.is_empty() => format!(" in the namespace {ns:?}"),
            _ => " at the cluster scope".to_owned(),
        };
        let why = format!(
            "User {:?} cannot {} resource \"{}{sub}\" in API group {:?}{scope}",
            call.who.user,
            call.verb.as_str(),
            call.resource.plural,
            call.resource.group,
        );
        let mut refusal = Refusal::forbidden(&call.resource, &call.name, &why);
        if call.name.is_empty() {
            refusal.message = format!("{}{sub} is forbidden: {why}", call.resource.group_resource());
        }
        Err(refusal)
    }
}

fn is_subject(grant: &Grant, who: &Identity) -> bool {
    subject_of(grant, who).is_some()
}

fn subject_of<'a>(grant: &'a Grant, who: &Identity) -> Option<&'a (String, String)> {
    grant.subjects.iter().find(|(kind, name)| match kind.as_str() {
        "Group" => who.groups.contains(name),
        _ => *name == who.user,
    })
}
