//! Allocation of ResourceClaims from ResourceSlices: the scheduler's part of dynamic resource allocation.

use super::caches::{BY_NODE, Caches};
use super::records::{Allocation, Node, Pod, ResourceClaim};
use super::selectors::node_selector_matches;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;

/// What is to be written to one claim before the pod is bound.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    claim: String,
    uid: String,
    devices: Vec<(String, String, String)>,
    allocation: Option<Value>,
}

/// The claims of one pod, and the devices that are taken by others.
pub(super) struct Claims<'a> {
    caches: &'a Caches,
    claims: Vec<Arc<ResourceClaim>>,
    taken: BTreeSet<(String, String, String)>,
}

fn devices(allocation: &Allocation) -> impl Iterator<Item = (String, String, String)> + '_ {
    let owned = allocation.devices.results.iter().filter(|r| !r.admin_access);
    owned.map(|r| (r.driver.clone(), r.pool.clone(), r.device.clone()))
}

impl<'a> Claims<'a> {
    /// Resolves the claims of a pod. `busy` are plans of other pods that are not written yet.
    ///
    /// # Errors
    /// A claim that does not exist yet, or that is being deleted.
    pub(super) fn of(caches: &'a Caches, pod: &Pod, busy: &[Plan]) -> Result<Self, String> {
        let mut claims = Vec::new();
        for claim in &pod.spec.resource_claims {
            let generated = || {
                let statuses = pod.status.resource_claim_statuses.iter();
                statuses.filter(|status| status.name == claim.name).find_map(|status| status.resource_claim_name.clone())
            };
            let Some(name) = claim.resource_claim_name.clone().or_else(generated) else {
                return Err("waiting for dynamic resource controller to create the resourceclaim".into());
            };
            let object = caches.claims.get(&format!("{}/{name}", pod.metadata.ns()));
            match object.filter(|object| !object.metadata.deleting()) {
                Some(object) => claims.push(object),
                None => return Err(format!("resourceclaim \"{name}\" not found")),
            }
        }
        let mut taken = BTreeSet::new();
        if !claims.is_empty() {
            taken.extend(
                caches
                    .claims
                    .all()
                    .iter()
                    .filter_map(|claim| claim.status.allocation.clone())
                    .flat_map(|a| devices(&a).collect::<Vec<_>>()),
            );
            taken.extend(busy.iter().flat_map(|plan| plan.devices.iter().cloned()));
        }
        Ok(Self { caches, claims, taken })
    }

    /// Plans all claims for one node.
    ///
    /// # Errors
    /// Why the node cannot satisfy them.
    pub(super) fn plan(&self, node: &Node) -> Result<Vec<Plan>, String> {
        let mut taken = self.taken.clone();
        let mut plans = Vec::new();
        for claim in &self.claims {
            let (key, uid) = (claim.metadata.key(), claim.metadata.uid.clone());
            if let Some(allocation) = &claim.status.allocation {
                if allocation.node_selector.as_ref().is_some_and(|selector| !node_selector_matches(selector, node)) {
                    return Err("resourceclaim not available on the node".into());
                }
                plans.push(Plan { claim: key, uid, devices: Vec::new(), allocation: None });
                continue;
            }
            let mut results = Vec::new();
            let mut picked = Vec::new();
            for request in claim.spec.pointer("/devices/requests").and_then(Value::as_array).into_iter().flatten() {
                let exact = request.get("exactly").or_else(|| request.pointer("/firstAvailable/0")).unwrap_or(request);
                let name = match request.pointer("/firstAvailable/0/name").and_then(Value::as_str) {
                    Some(sub) => json!(format!("{}/{sub}", request["name"].as_str().unwrap_or_default())),
                    None => request["name"].clone(),
                };
                let count = exact["count"].as_u64().unwrap_or(1);
                let drivers = self.drivers(exact["deviceClassName"].as_str().unwrap_or_default())?;
                // Who only looks on shares devices with whoever owns them.
                let admin = exact["adminAccess"].as_bool().unwrap_or(false);
                for _ in 0..count {
                    let nobody = BTreeSet::new();
                    let Some(device) = self.free(node, drivers.as_deref(), if admin { &nobody } else { &taken }) else {
                        return Err("cannot allocate all claims".into());
                    };
                    let mut result = json!({"request": name, "driver": device.0, "pool": device.1, "device": device.2});
                    if admin {
                        result["adminAccess"] = json!(true);
                    } else {
                        taken.insert(device.clone());
                        picked.push(device);
                    }
                    results.push(result);
                }
            }
            let selector = json!({"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node.metadata.name]}]}]});
            let allocation = json!({"devices": {"results": results}, "nodeSelector": selector});
            plans.push(Plan { claim: key, uid, devices: picked, allocation: Some(allocation) });
        }
        Ok(plans)
    }

    /// The drivers that a class names by `device.driver == "..."`; `None` means any.
    fn drivers(&self, class: &str) -> Result<Option<Vec<String>>, String> {
        let Some(object) = self.caches.device_classes.get(class) else {
            return Err(format!("deviceclass \"{class}\" not found"));
        };
        let mut named = Vec::new();
        for selector in object.spec["selectors"].as_array().into_iter().flatten() {
            let expression = selector.pointer("/cel/expression").and_then(Value::as_str).unwrap_or_default();
            let compact: String = expression.split_whitespace().collect();
            for part in compact.split("device.driver==").skip(1) {
                let quote = part.chars().next().filter(|c| matches!(c, '"' | '\''));
                if let Some(name) = quote.and_then(|quote| part[1..].split(quote).next()) {
                    named.push(name.to_owned());
                }
            }
        }
        Ok(if named.is_empty() { None } else { Some(named) })
    }

    fn free(
        &self,
        node: &Node,
        drivers: Option<&[String]>,
        taken: &BTreeSet<(String, String, String)>,
    ) -> Option<(String, String, String)> {
        let slices = self.caches.slices.indexed(BY_NODE, &node.metadata.name);
        let fitting = slices.iter().filter(|slice| drivers.is_none_or(|drivers| drivers.contains(&slice.spec.driver)));
        let devices = fitting.flat_map(|slice| {
            slice.spec.devices.iter().map(|device| (slice.spec.driver.clone(), slice.spec.pool.name.clone(), device.name.clone()))
        });
        devices.into_iter().find(|device| !taken.contains(device))
    }
}

impl Plan {
    /// Writes the allocation, if it is new, and the reservation for the pod.
    ///
    /// # Errors
    /// 409 when somebody else changed the claim: the pod is decided again.
    pub(super) async fn write(&self, caches: &Caches, pod: &Pod) -> kube::Result<()> {
        let Some(claim) = caches.claims.get_uid(&self.claim, &self.uid) else { return Ok(()) };
        if claim.status.reserved_for.iter().any(|consumer| consumer.uid == pod.metadata.uid) {
            return Ok(());
        }
        let mut version = claim.metadata.resource_version.clone();
        if self.allocation.is_some() && !claim.metadata.finalizers.iter().any(|f| f == "resource.kubernetes.io/delete-protection")
        {
            let mut finalizers = claim.metadata.finalizers.clone();
            finalizers.push("resource.kubernetes.io/delete-protection".to_owned());
            let patch = json!({"metadata": {"uid": self.uid, "resourceVersion": version, "finalizers": finalizers}});
            version = caches.claims.merge(&self.claim, "", &patch).await?.metadata.resource_version.clone();
        }
        let mut reserved = serde_json::to_value(&claim.status.reserved_for).unwrap_or_default();
        if let Some(list) = reserved.as_array_mut() {
            list.push(json!({"resource": "pods", "name": pod.metadata.name, "uid": pod.metadata.uid}));
        }
        let mut patch = json!({"metadata": {"uid": self.uid, "resourceVersion": version}, "status": {"reservedFor": reserved}});
        if let Some(allocation) = &self.allocation {
            patch["status"]["allocation"] = allocation.clone();
        }
        caches.claims.merge(&self.claim, "status", &patch).await.map(|_| ())
    }
}
