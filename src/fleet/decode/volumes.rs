//! What CSI volumes are made of: PersistentVolumes, VolumeAttachments, CSINodes, CSIDrivers, and the parts of them in pods and nodes.

use serde::{Deserialize, de::IgnoredAny};

use super::{
    Context, Slim,
    meta::RawMeta,
    pod::RawContainer,
    text::{All, List, MIGRATED_TO, Map, Text},
};
use crate::{
    api::{NodeName, ObjectKey, Uid},
    fleet::{
        event::Record,
        records::{AttachmentRecord, CsiDriverRecord, CsiNodeRecord, CsiSource, Str, VolumeRecord},
    },
};

// Which driver serves an in-tree source: k8s.io/csi-translation-lib.
pub const AWS_EBS: &str = "ebs.csi.aws.com";
pub const GCE_PD: &str = "pd.csi.storage.gke.io";
pub const AZURE_DISK: &str = "disk.csi.azure.com";
pub const AZURE_FILE: &str = "file.csi.azure.com";
pub const CINDER: &str = "cinder.csi.openstack.org";
pub const VSPHERE: &str = "csi.vsphere.vmware.com";
pub const PORTWORX: &str = "pxd.portworx.com";

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct RawCsi<'a> {
    #[serde(borrow)]
    driver: Text<'a>,
    #[serde(borrow)]
    volume_handle: Text<'a>,
    #[serde(borrow)]
    volume_attributes: Map<'a, All>,
}

impl RawCsi<'_> {
    pub fn source(&self, context: &mut Context) -> CsiSource {
        let attributes = self.volume_attributes.pairs.iter();
        CsiSource {
            driver: context.text(&self.driver),
            handle: context.own(&self.volume_handle),
            attributes: attributes.map(|(key, value)| (context.text(key), context.own(value))).collect(),
        }
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct RawHostPath<'a> {
    #[serde(borrow)]
    path: Text<'a>,
}

impl RawHostPath<'_> {
    /// The kubelet's folder in which drivers' sockets are found.
    pub fn is_registry(&self) -> bool {
        self.path.trim_end_matches('/').ends_with("/plugins_registry")
    }
}

/// Names of the volumes that a container mounts or has as a device. What does not parse is left out of neither: nothing is used then.
pub(super) fn used_names<'a>(container: &RawContainer<'a>) -> Vec<Text<'a>> {
    #[derive(Deserialize, Default)]
    #[serde(default)]
    struct RawUse<'a> {
        #[serde(borrow)]
        name: Text<'a>,
    }
    let lists = [container.volume_mounts, container.volume_devices].into_iter().flatten();
    let lists = lists.map(|raw| serde_json::from_str::<List<RawUse<'a>>>(raw.get()).unwrap_or_default());
    lists.flat_map(|list| list.0).map(|it| it.name).collect()
}

/// `kubernetes.io/csi/<driver>^<handle>`, as nodes report volumes. Driver names have no `^`, handles may.
pub(super) fn csi_volume(name: &str, context: &mut Context) -> Option<(Str, Str)> {
    let (driver, handle) = name.strip_prefix("kubernetes.io/csi/")?.split_once('^')?;
    Some((context.text(driver), context.own(handle)))
}

pub(super) struct Volume;

#[derive(Deserialize)]
pub(super) struct RawVolume<'a> {
    #[serde(borrow)]
    metadata: RawMeta<'a>,
    #[serde(borrow, default)]
    spec: RawVolumeSpec<'a>,
    #[serde(borrow, default)]
    status: RawPhase<'a>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawPhase<'a> {
    #[serde(borrow)]
    phase: Text<'a>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RawVolumeSpec<'a> {
    #[serde(borrow)]
    claim_ref: Option<RawClaimRef<'a>>,
    #[serde(borrow)]
    csi: Option<RawCsi<'a>>,
    aws_elastic_block_store: Option<IgnoredAny>,
    gce_persistent_disk: Option<IgnoredAny>,
    azure_disk: Option<IgnoredAny>,
    azure_file: Option<IgnoredAny>,
    cinder: Option<IgnoredAny>,
    vsphere_volume: Option<IgnoredAny>,
    portworx_volume: Option<IgnoredAny>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawClaimRef<'a> {
    #[serde(borrow)]
    namespace: Text<'a>,
    #[serde(borrow)]
    name: Text<'a>,
    #[serde(borrow)]
    uid: Text<'a>,
}

impl RawVolumeSpec<'_> {
    fn migrated_driver(&self) -> Option<&'static str> {
        let sources = [
            (&self.aws_elastic_block_store, AWS_EBS),
            (&self.gce_persistent_disk, GCE_PD),
            (&self.azure_disk, AZURE_DISK),
            (&self.azure_file, AZURE_FILE),
            (&self.cinder, CINDER),
            (&self.vsphere_volume, VSPHERE),
            (&self.portworx_volume, PORTWORX),
        ];
        sources.into_iter().find_map(|(source, driver)| source.as_ref().and(Some(driver)))
    }
}

impl Slim for Volume {
    type Raw<'a> = RawVolume<'a>;

    fn record(raw: RawVolume<'_>, context: &mut Context) -> Result<Record, String> {
        // What the cluster says of a volume that was migrated counts more than what its source was once mapped to.
        let migrated = raw.metadata.annotations.get(MIGRATED_TO).filter(|driver| !driver.is_empty());
        let csi = match &raw.spec.csi {
            Some(csi) => Some(csi.source(context)),
            None => migrated
                .or(raw.spec.migrated_driver())
                .map(|driver| CsiSource { driver: context.text(driver), ..CsiSource::default() }),
        };
        let claim = raw.spec.claim_ref.as_ref().map(|claim| {
            let key = ObjectKey { namespace: context.text(&claim.namespace), name: context.own(&claim.name) };
            (key, Uid::from(&*claim.uid))
        });
        Ok(Record::Volume(VolumeRecord {
            name: raw.metadata.name()?,
            meta: raw.metadata.meta(context)?,
            claim,
            released: matches!(&*raw.status.phase, "Released" | "Failed"),
            csi,
        }))
    }
}

pub(super) struct Attachment;

#[derive(Deserialize)]
pub(super) struct RawAttachment<'a> {
    #[serde(borrow)]
    metadata: RawMeta<'a>,
    #[serde(borrow, default)]
    spec: RawAttachmentSpec<'a>,
    #[serde(borrow, default)]
    status: RawAttachmentStatus<'a>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RawAttachmentSpec<'a> {
    #[serde(borrow)]
    attacher: Text<'a>,
    #[serde(borrow)]
    node_name: Text<'a>,
    #[serde(borrow)]
    source: RawAttachmentSource<'a>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RawAttachmentSource<'a> {
    #[serde(borrow)]
    persistent_volume_name: Text<'a>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RawAttachmentStatus<'a> {
    attached: Option<bool>,
    #[serde(borrow)]
    detach_error: Option<RawError<'a>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawError<'a> {
    #[serde(borrow)]
    message: Text<'a>,
}

impl Slim for Attachment {
    type Raw<'a> = RawAttachment<'a>;

    fn record(raw: RawAttachment<'_>, context: &mut Context) -> Result<Record, String> {
        let volume = &raw.spec.source.persistent_volume_name;
        Ok(Record::Attachment(AttachmentRecord {
            name: raw.metadata.name()?,
            meta: raw.metadata.meta(context)?,
            attacher: context.text(&raw.spec.attacher),
            node: NodeName::from(context.text(&raw.spec.node_name)),
            volume: (!volume.is_empty()).then(|| context.own(volume)),
            attached: raw.status.attached.unwrap_or(false),
            detach_error: raw.status.detach_error.map(|error| context.own(&error.message)),
        }))
    }
}

pub(super) struct CsiNode;

#[derive(Deserialize)]
pub(super) struct RawCsiNode<'a> {
    #[serde(borrow)]
    metadata: RawMeta<'a>,
    #[serde(borrow, default)]
    spec: RawCsiNodeSpec<'a>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawCsiNodeSpec<'a> {
    #[serde(borrow)]
    drivers: List<RawNamed<'a>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawNamed<'a> {
    #[serde(borrow)]
    name: Text<'a>,
}

impl Slim for CsiNode {
    type Raw<'a> = RawCsiNode<'a>;

    fn record(raw: RawCsiNode<'_>, context: &mut Context) -> Result<Record, String> {
        Ok(Record::CsiNode(CsiNodeRecord {
            node: NodeName::from(context.text(&raw.metadata.name()?)),
            meta: raw.metadata.meta(context)?,
            drivers: raw.spec.drivers.iter().map(|driver| context.text(&driver.name)).collect(),
        }))
    }
}

pub(super) struct CsiDriver;

#[derive(Deserialize)]
pub(super) struct RawCsiDriver<'a> {
    #[serde(borrow)]
    metadata: RawMeta<'a>,
    #[serde(default)]
    spec: RawCsiDriverSpec,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RawCsiDriverSpec {
    attach_required: Option<bool>,
}

impl Slim for CsiDriver {
    type Raw<'a> = RawCsiDriver<'a>;

    fn record(raw: RawCsiDriver<'_>, context: &mut Context) -> Result<Record, String> {
        Ok(Record::CsiDriver(CsiDriverRecord {
            name: raw.metadata.name()?,
            meta: raw.metadata.meta(context)?,
            // The API server's default.
            attach_required: raw.spec.attach_required.unwrap_or(true),
        }))
    }
}
