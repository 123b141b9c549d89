//! `lockkeeper manifests`: what a cluster needs to know of lockkeeper, as YAML. Nothing here speaks with a cluster.

mod rbac;
#[cfg(test)]
mod tests;

use clap::{Args, ValueEnum};

use crate::api::{access, crds, keys::LEASE};

/// Which parts to print; none named means all of them.
#[derive(Debug, Clone, Default, Args)]
pub struct Manifests {
    /// The CustomResourceDefinitions
    #[arg(long)]
    pub crds: bool,
    /// The RBAC roles; once for each, or none named for all
    #[arg(long, value_name = "ROLE", value_enum, num_args = 0..=1, default_missing_value = "all")]
    pub role: Vec<RoleName>,
    /// The ValidatingAdmissionPolicies and their bindings
    #[arg(long)]
    pub admission: bool,
    /// Namespace, ServiceAccount, the reconciler's bindings, Deployment, PodDisruptionBudget and NetworkPolicy
    #[arg(long)]
    pub deployment: bool,
    /// Bind the printed roles to this user
    #[arg(long, value_name = "NAME", requires = "role")]
    pub to_user: Vec<String>,
    /// Bind the printed roles to this group
    #[arg(long, value_name = "NAME", requires = "role")]
    pub to_group: Vec<String>,
    /// The Deployment's image
    #[arg(long, value_name = "IMAGE", default_value = concat!("lockkeeper:", env!("CARGO_PKG_VERSION")))]
    pub image: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum RoleName {
    Viewer,
    Operator,
    Overrider,
    Reconciler,
    All,
}

impl RoleName {
    fn roles(self) -> Vec<access::Role> {
        match self {
            Self::Viewer => vec![access::Role::Viewer],
            Self::Operator => vec![access::Role::Operator],
            Self::Overrider => vec![access::Role::Overrider],
            Self::Reconciler => vec![access::Role::Reconciler],
            Self::All => access::Role::ALL.to_vec(),
        }
    }
}

/// The YAML documents, in the order in which they can be applied. `namespace` is the Deployment's; the Lease's never changes.
pub fn render(wanted: &Manifests, namespace: Option<&str>) -> Result<String, serde_saphyr::ser::Error> {
    let namespace = namespace.unwrap_or(LEASE.0);
    let all = !wanted.crds && wanted.role.is_empty() && !wanted.admission && !wanted.deployment;
    let mut text = String::new();
    // The roles need it too: one of them is in the Lease's namespace.
    if all || wanted.deployment || !wanted.role.is_empty() {
        text.push_str(&namespaces(namespace));
    }
    if all || wanted.crds {
        for crd in crds() {
            text.push_str("---\n");
            text.push_str(&serde_saphyr::to_string(&crd)?);
        }
    }
    let named = if all { vec![RoleName::All] } else { wanted.role.clone() };
    for role in access::Role::ALL {
        if named.iter().any(|name| name.roles().contains(&role)) {
            text.push_str(&rbac::role(role));
            for (kind, names) in [("User", &wanted.to_user), ("Group", &wanted.to_group)] {
                for name in names {
                    text.push_str(&rbac::bindings(role, &rbac::Subject::Person { kind, name }));
                }
            }
        }
    }
    if all || wanted.admission {
        text.push_str("---\n");
        text.push_str(include_str!("admission.yaml"));
    }
    if all || wanted.deployment {
        text.push_str(&rbac::bindings(access::Role::Reconciler, &rbac::Subject::ServiceAccount { namespace }));
        text.push_str("---\n");
        let image = serde_json::to_string(&wanted.image).unwrap_or_default();
        text.push_str(&include_str!("deployment.yaml").replace("$NAMESPACE", namespace).replace("$IMAGE", &image));
    }
    Ok(text)
}

fn namespaces(namespace: &str) -> String {
    let mut names = vec![LEASE.0];
    if namespace != LEASE.0 {
        names.push(namespace);
    }
    names
        .iter()
        .map(|name| {
            format!(
                "---\napiVersion: v1\nkind: Namespace\nmetadata:\n  name: {name}\n  labels:\n    app.kubernetes.io/name: lockkeeper\n"
            )
        })
        .collect()
}
