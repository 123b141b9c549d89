//! Where each watched kind is served, who needs it, and what of it is asked for.

use crate::{
    api::{GROUP, keys},
    fleet::event::Kind,
    kmm::records,
};

/// How a kind is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Served {
    /// `/api/v1`, `/apis/apps/v1`.
    pub root: &'static str,
    /// Empty: the core group.
    pub group: &'static str,
    pub plural: &'static str,
    /// Empty: all namespaces, or cluster-scoped.
    pub namespace: &'static str,
    /// Query parts of every list and watch of it, each with a leading `&`.
    pub filter: &'static str,
    pub need: Need,
}

/// What is missing when a kind cannot be watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// Nothing works without it.
    Always,
    /// The console works as a monitor without it, the engine does not.
    Engine,
    /// Served by some clusters only; without it there are no such objects.
    Optional,
    /// Watched only while a csiNodePlugin component exists, which then cannot do without it.
    Csi,
    /// Watched only while a component follows a Module of KMM.
    Kmm,
}

pub fn served(kind: Kind) -> Served {
    let core = |plural, need| Served { root: "/api/v1", group: "", plural, namespace: "", filter: "", need };
    let apps = |plural, need| Served { root: "/apis/apps/v1", group: "apps", plural, namespace: "", filter: "", need };
    let dra = |plural| Served {
        root: "/apis/resource.k8s.io/v1",
        group: "resource.k8s.io",
        plural,
        namespace: "",
        filter: "",
        need: Need::Optional,
    };
    let storage = |plural| Served {
        root: "/apis/storage.k8s.io/v1",
        group: "storage.k8s.io",
        plural,
        namespace: "",
        filter: "",
        need: Need::Csi,
    };
    let kmm = |plural| Served {
        root: "/apis/kmm.sigs.x-k8s.io/v1beta1",
        group: records::GROUP,
        plural,
        namespace: "",
        filter: "",
        need: Need::Kmm,
    };
    let ours = |plural| Served {
        root: "/apis/lockkeeper.dev/v1alpha1",
        group: GROUP,
        plural,
        namespace: "",
        filter: "",
        need: Need::Engine,
    };
    let lease = |namespace, filter, need| Served {
        root: "/apis/coordination.k8s.io/v1",
        group: "coordination.k8s.io",
        plural: "leases",
        namespace,
        filter,
        need,
    };
    match kind {
        Kind::Node => core("nodes", Need::Always),
        Kind::Pod => core("pods", Need::Always),
        Kind::DaemonSet => apps("daemonsets", Need::Always),
        Kind::Budget => {
            Served { root: "/apis/policy/v1", group: "policy", plural: "poddisruptionbudgets", ..core("", Need::Always) }
        }
        Kind::Claim => dra("resourceclaims"),
        Kind::Slice => dra("resourceslices"),
        Kind::NodeLease => lease("kube-node-lease", "", Need::Engine),
        Kind::VolumeClaim => core("persistentvolumeclaims", Need::Engine),
        Kind::ReplicaSet => apps("replicasets", Need::Engine),
        Kind::StatefulSet => apps("statefulsets", Need::Engine),
        Kind::Volume => core("persistentvolumes", Need::Csi),
        Kind::Attachment => storage("volumeattachments"),
        Kind::CsiNode => storage("csinodes"),
        Kind::CsiDriver => storage("csidrivers"),
        Kind::Revision => apps("controllerrevisions", Need::Csi),
        Kind::KmmModule => kmm("modules"),
        Kind::KmmConfig => kmm("nodemodulesconfigs"),
        Kind::KmmImages => kmm("moduleimagesconfigs"),
        Kind::Component => ours("nodecomponents"),
        Kind::Handoff => ours("nodehandoffs"),
        Kind::Lease => lease(keys::LEASE.0, "&fieldSelector=metadata.name%3Dlockkeeper", Need::Engine),
    }
}

impl Served {
    /// `pods`, `nodecomponents.lockkeeper.dev`, `leases.coordination.k8s.io in kube-node-lease`.
    pub fn word(&self) -> String {
        let mut word = self.plural.to_owned();
        if !self.group.is_empty() {
            word = format!("{word}.{}", self.group);
        }
        if self.namespace.is_empty() { word } else { format!("{word} in {}", self.namespace) }
    }

    /// The path of the collection: that of one namespace, or the whole cluster's when it is empty.
    pub fn collection(&self, namespace: &str) -> String {
        if namespace.is_empty() {
            format!("{}/{}", self.root, self.plural)
        } else {
            format!("{}/namespaces/{namespace}/{}", self.root, self.plural)
        }
    }

    /// The path of one object.
    pub fn object(&self, namespace: &str, name: &str) -> String {
        format!("{}/{name}", self.collection(namespace))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lease_filter_names_the_one_lease() {
        assert_eq!(served(Kind::Lease).filter, format!("&fieldSelector=metadata.name%3D{}", keys::LEASE.1));
        assert_eq!(served(Kind::Lease).word(), "leases.coordination.k8s.io in lockkeeper-system");
        assert_eq!(served(Kind::KmmModule).root, format!("/apis/{}/{}", records::GROUP, records::VERSION));
        assert_eq!(served(Kind::Budget).collection(""), "/apis/policy/v1/poddisruptionbudgets");
        assert_eq!(
            served(Kind::Handoff).object("ns", "gpu.n1"),
            "/apis/lockkeeper.dev/v1alpha1/namespaces/ns/nodehandoffs/gpu.n1"
        );
    }
}
