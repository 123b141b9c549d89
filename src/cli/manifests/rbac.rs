//! RBAC of the access table, as YAML in which each rule stands below its reason. What the rules are is `api::access`.

use std::{collections::BTreeSet, fmt::Write};

use crate::api::access::{self, Role, Rule, Scope};

/// The ClusterRole and Roles of one role. Their bindings are for whoever grants it, but for the reconciler's ServiceAccount.
pub fn role(role: Role) -> String {
    let mut text = String::new();
    let scopes: BTreeSet<Scope> = access::rules(role).map(|rule| rule.scope).collect();
    for scope in scopes {
        text.push_str("---\n");
        for line in wrapped(role.meaning()) {
            let _ = writeln!(text, "# {line}");
        }
        let kind = if scope == Scope::Cluster { "ClusterRole" } else { "Role" };
        let _ = write!(text, "apiVersion: rbac.authorization.k8s.io/v1\nkind: {kind}\nmetadata:\n  name: {}\n", name(role));
        if let Scope::Namespace(namespace) = scope {
            let _ = writeln!(text, "  namespace: {namespace}");
        }
        text.push_str("  labels:\n    app.kubernetes.io/name: lockkeeper\nrules:\n");
        for rule in access::rules(role).filter(|rule| rule.scope == scope) {
            text.push_str(&rendered(rule));
        }
    }
    text
}

/// Who is given a role.
pub enum Subject<'a> {
    /// `lockkeeper` in this namespace.
    ServiceAccount { namespace: &'a str },
    /// `User` or `Group`.
    Person { kind: &'static str, name: &'a str },
}

/// Bindings of a role to one subject.
pub fn bindings(role: Role, to: &Subject) -> String {
    let mut text = String::new();
    let (suffix, subject) = match to {
        Subject::ServiceAccount { namespace } => {
            (String::new(), format!("kind: ServiceAccount\n    name: lockkeeper\n    namespace: {namespace}"))
        }
        Subject::Person { kind, name } => (
            format!("-{}-{}", kind.to_lowercase(), object_name(name)),
            format!("apiGroup: rbac.authorization.k8s.io\n    kind: {kind}\n    name: {}", json(name)),
        ),
    };
    let scopes: BTreeSet<Scope> = access::rules(role).map(|rule| rule.scope).collect();
    let (role, name) = (name(role), name(role) + &suffix);
    for scope in scopes {
        let (kind, of, place) = match scope {
            Scope::Cluster => ("ClusterRoleBinding", "ClusterRole", String::new()),
            Scope::Namespace(place) => ("RoleBinding", "Role", format!("  namespace: {place}\n")),
        };
        let _ = write!(
            text,
            "---\napiVersion: rbac.authorization.k8s.io/v1\nkind: {kind}\nmetadata:\n  name: {name}\n{place}  labels:\n    \
             app.kubernetes.io/name: lockkeeper\nroleRef:\n  apiGroup: rbac.authorization.k8s.io\n  kind: {of}\n  name: {role}\n\
             subjects:\n  - {subject}\n"
        );
    }
    text
}

/// JSON text is YAML text.
fn json(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Part of an object's name, for a subject whose name may be any text.
fn object_name(text: &str) -> String {
    let word: String =
        text.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' }).take(63).collect();
    word.trim_matches('-').to_owned()
}

fn name(role: Role) -> String {
    format!("lockkeeper-{}", role.word())
}

fn rendered(rule: &Rule) -> String {
    let list = |words: &[&str]| format!("[{}]", words.iter().map(|word| format!("{word:?}")).collect::<Vec<_>>().join(", "));
    let mut text = String::new();
    for line in wrapped(rule.why) {
        let _ = writeln!(text, "  # {line}");
    }
    let _ = writeln!(text, "  - apiGroups: {}\n    resources: {}", list(&[rule.group]), list(rule.resources));
    if !rule.names.is_empty() {
        let _ = writeln!(text, "    resourceNames: {}", list(rule.names));
    }
    let _ = writeln!(text, "    verbs: {}", list(rule.verbs));
    text
}

/// Lines of at most 110 characters.
fn wrapped(text: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let last = lines.last_mut().filter(|line| line.len() + word.len() < 110);
        match last {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) => {
                line.push(' ');
                line.push_str(word);
            }
            None => lines.push(word.to_owned()),
        }
    }
    lines
}
