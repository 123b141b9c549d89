//! Reads straight from the API server, past every cache: the facts that a destructive action rests on. Decoded as the watches decode.
//! What they mean, and whether the action is still right, is decided elsewhere.

use std::collections::BTreeSet;

use futures::future::{join_all, try_join, try_join3};

use super::{CallError, Cluster, call::Call, kinds::served};
use crate::{
    api::{NodeName, ObjectKey, keys::LEASE},
    fleet::{
        decode::Decoder,
        event::{Kind, Record},
        records::*,
    },
    kmm::records::{ModuleRecord, NmcRecord},
};

/// A fresh read that cannot be used: the action must wait.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FreshError {
    #[error(transparent)]
    Call(#[from] CallError),
    /// To overlook an object that does not decode could hide a claimant.
    #[error("{kind:?} {key} does not decode: {why}")]
    Undecodable { kind: Kind, key: String, why: String },
    #[error("the answer for {kind:?} does not decode: {why}")]
    NoList { kind: Kind, why: String },
}

/// What to read beside the node itself, its Lease, and the pods on it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wanted {
    /// The handoff's object.
    pub handoff: Option<ObjectKey>,
    /// Pods without a node, and the selected nodes of their volumes: who may be on the way.
    pub incoming: bool,
    /// ResourceClaims of all namespaces and the ResourceSlices of the node: the component has DRA drivers.
    pub devices: bool,
    /// The claims and volumes of the node's pods, the node's CSINode, and these VolumeAttachments: the component is a CSI nodeplugin.
    pub volumes: Option<Vec<Str>>,
    /// The node's NodeModulesConfig: the component follows a Module of KMM.
    pub modules: bool,
}

/// One node's facts as the API server had them while they were read. Not one snapshot: each part is as old as its own read, and no pod
/// can slip through between them, since unbound pods are read before the pods of the node.
#[derive(Debug, Clone, PartialEq)]
pub struct FreshNode {
    pub name: NodeName,
    /// None: there is no such Node.
    pub node: Option<NodeRecord>,
    pub lease: Option<NodeLeaseRecord>,
    /// The lockkeeper Lease: slots and epoch.
    pub our_lease: Option<LeaseRecord>,
    /// None: not wanted, or it does not exist.
    pub handoff: Option<HandoffRecord>,
    /// Bound to the node, any phase.
    pub pods: Vec<PodRecord>,
    /// None: not wanted.
    pub unbound: Option<Vec<PodRecord>>,
    pub volume_claims: Vec<VolumeClaimRecord>,
    /// None: not wanted, or not served by this cluster.
    pub claims: Option<Vec<ClaimRecord>>,
    pub slices: Option<Vec<SliceRecord>>,
    pub volumes: Vec<VolumeRecord>,
    /// Those that were asked for and still exist.
    pub attachments: Vec<AttachmentRecord>,
    pub csi_node: Option<CsiNodeRecord>,
    pub config: Option<NmcRecord>,
}

/// The facts of one node.
///
/// # Errors
/// Any part that cannot be read or decoded: a partial answer would look like an absence.
pub async fn node(cluster: &Cluster, name: &NodeName, wanted: &Wanted) -> Result<FreshNode, FreshError> {
    // The cordon is read before the pods: a list that is empty after it proves more.
    let handoff = async {
        match &wanted.handoff {
            Some(key) => get(cluster, Kind::Handoff, &key.namespace, &key.name).await,
            None => Ok(None),
        }
    };
    let (node, handoff, our_lease) =
        try_join3(get(cluster, Kind::Node, "", name.as_str()), handoff, get(cluster, Kind::Lease, LEASE.0, LEASE.1)).await?;
    // Before the worker pods: an entry goes only after its pod has ended, and one that comes later is for the next look.
    let config = if wanted.modules { get(cluster, Kind::KmmConfig, "", name.as_str()).await? } else { None };
    // Unbound before bound: a pod that is bound in between is in both lists, not in neither.
    let (unbound, mut volume_claims) = if wanted.incoming { incoming(cluster).await? } else { (None, Vec::new()) };
    let (claims, slices) = if wanted.devices { devices(cluster, name).await? } else { (None, None) };
    let (pods, lease) = try_join(
        list(cluster, Kind::Pod, "", &format!("spec.nodeName={name}")),
        get(cluster, Kind::NodeLease, "kube-node-lease", name.as_str()),
    )
    .await?;
    let pods: Vec<PodRecord> = pods.into_iter().filter_map(pod_of).collect();
    let of_volumes = match &wanted.volumes {
        Some(attachments) => csi(cluster, name, &pods, &volume_claims, attachments).await?,
        None => Csi::default(),
    };
    volume_claims.extend(of_volumes.claims);
    Ok(FreshNode {
        volumes: of_volumes.volumes,
        attachments: of_volumes.attachments,
        csi_node: of_volumes.csi_node,
        config: config.and_then(config_of),
        name: name.clone(),
        node: node.and_then(node_of),
        lease: lease.and_then(node_lease_of),
        our_lease: our_lease.and_then(lease_of),
        handoff: handoff.and_then(handoff_of),
        pods,
        unbound,
        volume_claims,
        claims,
        slices,
    })
}

async fn incoming(cluster: &Cluster) -> Result<(Option<Vec<PodRecord>>, Vec<VolumeClaimRecord>), FreshError> {
    let unbound: Vec<PodRecord> = list(cluster, Kind::Pod, "", "spec.nodeName=").await?.into_iter().filter_map(pod_of).collect();
    let mut namespaces: Vec<&str> = unbound
        .iter()
        .filter(|pod| pod.extra.as_ref().is_some_and(|extra| extra.volume_claims().next().is_some()))
        .map(|pod| &*pod.key.namespace)
        .collect();
    namespaces.sort_unstable();
    namespaces.dedup();
    let lists = join_all(namespaces.into_iter().map(|namespace| list(cluster, Kind::VolumeClaim, namespace, ""))).await;
    let mut volume_claims = Vec::new();
    for records in lists {
        volume_claims.extend(records?.into_iter().filter_map(volume_claim_of));
    }
    Ok((Some(unbound), volume_claims))
}

type Devices = (Option<Vec<ClaimRecord>>, Option<Vec<SliceRecord>>);

async fn devices(cluster: &Cluster, node: &NodeName) -> Result<Devices, FreshError> {
    let claims = optional(list(cluster, Kind::Claim, "", "").await)?;
    let slices = optional(list(cluster, Kind::Slice, "", &format!("spec.nodeName={node}")).await)?;
    Ok((
        claims.map(|records| records.into_iter().filter_map(claim_of).collect()),
        slices.map(|records| records.into_iter().filter_map(slice_of).collect()),
    ))
}

#[derive(Default)]
struct Csi {
    claims: Vec<VolumeClaimRecord>,
    volumes: Vec<VolumeRecord>,
    attachments: Vec<AttachmentRecord>,
    csi_node: Option<CsiNodeRecord>,
}

/// Everything by name: what these pods use is little, what the cluster has is much.
async fn csi(
    cluster: &Cluster,
    node: &NodeName,
    pods: &[PodRecord],
    known: &[VolumeClaimRecord],
    attachments: &[Str],
) -> Result<Csi, FreshError> {
    let names = pods.iter().filter(|pod| !pod.phase.is_terminal()).flat_map(|pod| {
        let claims = pod.extra.iter().flat_map(|extra| extra.volume_claims());
        claims.map(|name| ObjectKey { namespace: pod.key.namespace.clone(), name: name.clone() })
    });
    let names: BTreeSet<ObjectKey> = names.filter(|key| !known.iter().any(|claim| claim.key == *key)).collect();
    let claims = names.iter().map(|key| get(cluster, Kind::VolumeClaim, &key.namespace, &key.name));
    let mut found = Csi::default();
    for claim in join_all(claims).await {
        found.claims.extend(claim?.and_then(volume_claim_of));
    }
    let still = join_all(attachments.iter().map(|name| get(cluster, Kind::Attachment, "", name))).await;
    for attachment in still {
        found.attachments.extend(attachment?.and_then(attachment_of));
    }
    let claimed = known.iter().chain(&found.claims).filter_map(|claim| claim.volume.clone());
    let attached = found.attachments.iter().filter_map(|attachment| attachment.volume.clone());
    let volumes: BTreeSet<Str> = claimed.chain(attached).collect();
    for volume in join_all(volumes.iter().map(|name| get(cluster, Kind::Volume, "", name))).await {
        found.volumes.extend(volume?.and_then(volume_of));
    }
    found.csi_node = get(cluster, Kind::CsiNode, "", node.as_str()).await?.and_then(csi_node_of);
    Ok(found)
}

fn optional(read: Result<Vec<Record>, FreshError>) -> Result<Option<Vec<Record>>, FreshError> {
    match read {
        Ok(records) => Ok(Some(records)),
        Err(FreshError::Call(error)) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

/// One object; None: it does not exist.
pub async fn get(cluster: &Cluster, kind: Kind, namespace: &str, name: &str) -> Result<Option<Record>, FreshError> {
    let body = match cluster.call(Call::get(served(kind).object(namespace, name))).await {
        Ok(body) => body,
        Err(error) if error.is_not_found() => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    match Decoder::new(kind).object(&body) {
        Ok(record) => Ok(Some(record)),
        Err(bad) => Err(FreshError::Undecodable { kind, key: ObjectKey::new(namespace, name).to_string(), why: bad.why }),
    }
}

/// All objects that the field selector lets through, in pages, from the newest state (no `resourceVersion=0`).
pub async fn list(cluster: &Cluster, kind: Kind, namespace: &str, fields: &str) -> Result<Vec<Record>, FreshError> {
    selected(cluster, kind, namespace, ("fieldSelector", fields)).await
}

/// All objects that the label selector lets through, in the same way.
pub async fn labelled(cluster: &Cluster, kind: Kind, namespace: &str, labels: &str) -> Result<Vec<Record>, FreshError> {
    selected(cluster, kind, namespace, ("labelSelector", labels)).await
}

async fn selected(
    cluster: &Cluster,
    kind: Kind,
    namespace: &str,
    (selector, text): (&str, &str),
) -> Result<Vec<Record>, FreshError> {
    let served = served(kind);
    let (mut all, mut next, mut decoder) = (Vec::new(), None::<String>, Decoder::new(kind));
    loop {
        let mut uri = format!("{}?limit=500", served.collection(namespace));
        if !text.is_empty() {
            uri = format!("{uri}&{selector}={}", super::call::query_value(text));
        }
        if let Some(next) = &next {
            uri = format!("{uri}&continue={}", super::call::query_value(next));
        }
        let body = cluster.call(Call::get(uri)).await?;
        let page = decoder.list(&body).map_err(|error| FreshError::NoList { kind, why: error.to_string() })?;
        if let Some(bad) = page.undecodable.into_iter().next() {
            return Err(FreshError::Undecodable { kind, key: bad.key.to_string(), why: bad.why });
        }
        all.extend(page.records);
        next = page.next;
        if next.is_none() {
            return Ok(all);
        }
    }
}

macro_rules! of {
    ($($name:ident: $variant:ident => $record:ty;)*) => {
        $(
            /// The decoder of a kind makes records of that kind only.
            pub fn $name(record: Record) -> Option<$record> {
                match record {
                    Record::$variant(record) => Some(record),
                    _ => None,
                }
            }
        )*
    };
}

of! {
    node_of: Node => NodeRecord;
    pod_of: Pod => PodRecord;
    node_lease_of: NodeLease => NodeLeaseRecord;
    lease_of: Lease => LeaseRecord;
    handoff_of: Handoff => HandoffRecord;
    volume_claim_of: VolumeClaim => VolumeClaimRecord;
    claim_of: Claim => ClaimRecord;
    slice_of: Slice => SliceRecord;
    component_of: Component => ComponentRecord;
    daemon_set_of: DaemonSet => DaemonSetRecord;
    volume_of: Volume => VolumeRecord;
    attachment_of: Attachment => AttachmentRecord;
    csi_node_of: CsiNode => CsiNodeRecord;
    config_of: KmmConfig => NmcRecord;
    module_of: KmmModule => ModuleRecord;
}

impl FreshNode {
    /// Every object read, for the store: newer than what the watches have told, if they lag.
    pub fn records(&self) -> impl Iterator<Item = Record> + '_ {
        self.node
            .iter()
            .cloned()
            .map(Record::Node)
            .chain(self.lease.iter().cloned().map(Record::NodeLease))
            .chain(self.our_lease.iter().cloned().map(Record::Lease))
            .chain(self.handoff.iter().cloned().map(Record::Handoff))
            .chain(self.pods.iter().cloned().map(Record::Pod))
            .chain(self.unbound.iter().flatten().cloned().map(Record::Pod))
            .chain(self.volume_claims.iter().cloned().map(Record::VolumeClaim))
            .chain(self.claims.iter().flatten().cloned().map(Record::Claim))
            .chain(self.slices.iter().flatten().cloned().map(Record::Slice))
            .chain(self.volumes.iter().cloned().map(Record::Volume))
            .chain(self.attachments.iter().cloned().map(Record::Attachment))
            .chain(self.csi_node.iter().cloned().map(Record::CsiNode))
            .chain(self.config.iter().cloned().map(Record::KmmConfig))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::cluster::testing::{Answer, cluster, status};

    fn pod(name: &str, node: &str, claims: &[&str]) -> Value {
        let volumes: Vec<Value> =
            claims.iter().map(|claim| json!({"name": claim, "persistentVolumeClaim": {"claimName": claim}})).collect();
        json!({"metadata": {"name": name, "namespace": "ns", "uid": name, "resourceVersion": "7"},
            "spec": {"nodeName": node, "containers": [], "volumes": volumes}, "status": {"phase": "Running"}})
    }

    fn list(items: Vec<Value>, next: &str) -> Answer {
        Answer::Json(200, json!({"kind": "List", "metadata": {"resourceVersion": "9", "continue": next}, "items": items}))
    }

    #[tokio::test(start_paused = true)]
    async fn reads_unbound_pods_before_bound_ones_and_every_page() {
        let (cluster, heard) = cluster(false, |asked| match asked.uri.as_str() {
            "/api/v1/nodes/n1" => Answer::Json(200, json!({"metadata": {"name": "n1", "uid": "u", "resourceVersion": "5"}})),
            uri if uri.contains("/leases/") => status(404, "NotFound"),
            uri if uri.contains("fieldSelector=spec.nodeName%3D&") || uri.ends_with("fieldSelector=spec.nodeName%3D") => {
                list(vec![pod("waiting", "", &["data"])], "")
            }
            uri if uri.contains("continue=more") => list(vec![pod("b", "n1", &[])], ""),
            uri if uri.contains("fieldSelector=spec.nodeName%3Dn1") => list(vec![pod("a", "n1", &[])], "more"),
            uri if uri.contains("/namespaces/ns/persistentvolumeclaims") => list(
                vec![json!({"metadata": {"name": "data", "namespace": "ns", "uid": "d", "resourceVersion": "3",
                    "annotations": {"volume.kubernetes.io/selected-node": "n1"}}})],
                "",
            ),
            _ => status(404, "NotFound"),
        });
        let wanted = Wanted { incoming: true, devices: true, ..Wanted::default() };
        let fresh = node(&cluster, &"n1".into(), &wanted).await.unwrap();
        assert_eq!(fresh.pods.iter().map(|pod| &*pod.key.name).collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(fresh.unbound.as_ref().map(Vec::len), Some(1));
        assert_eq!(fresh.volume_claims[0].selected_node, Some("n1".into()));
        assert_eq!((fresh.claims.as_ref(), fresh.lease.as_ref()), (None, None), "kinds that are not served are not empty");
        let uris: Vec<String> = heard.all().into_iter().map(|asked| asked.uri).collect();
        let at = |part: &str| uris.iter().position(|uri| uri.contains(part)).unwrap();
        assert!(at("nodes/n1") < at("spec.nodeName%3D") && at("spec.nodeName%3D") < at("spec.nodeName%3Dn1"));
        assert!(uris.iter().all(|uri| !uri.contains("resourceVersion")));
    }

    #[tokio::test(start_paused = true)]
    async fn a_partial_answer_is_an_error() {
        let (cluster, _) = cluster(false, |asked| {
            if asked.uri.contains("/pods") {
                list(vec![pod("a", "n1", &[]), json!({"metadata": {"name": "bad", "namespace": "ns", "uid": 7}})], "")
            } else {
                status(404, "NotFound")
            }
        });
        let error = node(&cluster, &"n1".into(), &Wanted::default()).await.unwrap_err();
        assert!(error.to_string().contains("ns/bad"), "{error}");
    }
}
