//! One read of all that a cluster says of Kernel Module Management, on any cluster and without lockkeeper's own objects. Reads only.

use super::{Cluster, call::Call, error::CallError, fresh, kinds};
use crate::{
    fleet::{event::Kind, records::NodeRecord},
    kmm::{
        Kmm,
        decode::{self, Decoded, Undecodable},
        keys,
        records::{GROUP, ImagesRecord, ModuleRecord, NmcRecord, PodRecord, SetRecord, VERSION},
    },
};

#[derive(Debug, thiserror::Error)]
pub enum KmmError {
    #[error(transparent)]
    Call(#[from] CallError),
    #[error(transparent)]
    NoList(#[from] Undecodable),
    #[error(transparent)]
    Fresh(#[from] fresh::FreshError),
}

/// What was read.
#[derive(Debug, Clone, Default)]
pub struct Read {
    pub kmm: Kmm,
    pub nodes: Vec<NodeRecord>,
    /// Objects that do not decode: what is said of their modules may be wrong.
    pub undecodable: Vec<Undecodable>,
}

/// Reads KMM's objects, its pods and DaemonSets, and all nodes; None: the cluster has no KMM.
///
/// # Errors
/// A list that cannot be had; one object that does not decode is no error.
pub async fn read(cluster: &Cluster) -> Result<Option<Read>, KmmError> {
    let own = |plural: &str| format!("/apis/{GROUP}/{VERSION}/{plural}");
    // Everybody may ask what is served; the kind itself is forbidden to most where it is not served, too.
    match cluster.call(Call::get(format!("/apis/{GROUP}/{VERSION}"))).await {
        Ok(_) => {}
        Err(error) if error.is_not_found() => return Ok(None),
        Err(error) => return Err(error.into()),
    }
    let mut read = Read::default();
    let modules = list::<ModuleRecord>(cluster, own("modules"), &mut read).await?;
    let configs = list::<NmcRecord>(cluster, own("nodemodulesconfigs"), &mut read).await?;
    let images = list::<ImagesRecord>(cluster, own("moduleimagesconfigs"), &mut read).await?;
    let selecting = |kind: Kind, label: &str| {
        format!("{}?labelSelector={}", kinds::served(kind).collection(""), super::call::query_value(label))
    };
    let mut pods = list::<PodRecord>(cluster, selecting(Kind::Pod, keys::MODULE_NAME), &mut read).await?;
    pods.extend(list::<PodRecord>(cluster, selecting(Kind::Pod, keys::IMAGE_OWNER), &mut read).await?);
    let sets = list::<SetRecord>(cluster, selecting(Kind::DaemonSet, keys::MODULE_NAME), &mut read).await?;
    read.nodes = fresh::list(cluster, Kind::Node, "", "").await?.into_iter().filter_map(fresh::node_of).collect();
    read.kmm = Kmm {
        modules: modules.into_iter().map(|record| (record.key.clone(), record)).collect(),
        configs: configs.into_iter().map(|record| (record.node.clone(), record)).collect(),
        images: images.into_iter().map(|record| (record.key.clone(), record)).collect(),
        pods: pods.into_iter().map(|record| (record.key.clone(), record)).collect(),
        sets: sets.into_iter().map(|record| (record.key.clone(), record)).collect(),
    };
    Ok(Some(read))
}

async fn list<R: Decoded>(cluster: &Cluster, uri: String, read: &mut Read) -> Result<Vec<R>, KmmError> {
    let body = cluster.call(Call::get(uri)).await?;
    let (records, broken) = decode::list(&body)?;
    read.undecodable.extend(broken);
    Ok(records)
}
