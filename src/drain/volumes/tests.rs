//! Each kind of volume and each rule, by tables: who uses the driver, what dies, who leaves, and what is still attached.

use super::*;
use crate::{
    api::{Uid, component::CsiNodePlugin, duration::Duration},
    fleet::{build::*, csi::PluginSet},
};

const CEPHFS: &str = "cephfs.csi.ceph.com";
const RBD: &str = "rook-ceph.rbd.csi.ceph.com";
const NEW: &str = "6.8.0-31-generic";

fn csi(driver: &str) -> CsiView {
    CsiView {
        plugin: CsiNodePlugin {
            driver: driver.into(),
            daemon_set: None,
            drain: VolumeDrain::AtRisk,
            at_risk_attributes: BTreeMap::new(),
            settle: Duration::from_secs(15),
            remount: None,
        },
        set: Some(PluginSet {
            key: key("ns/plugin"),
            uid: Uid::from("set"),
            template: TemplateRecord { host_network: true, ..TemplateRecord::default() },
        }),
        current: None,
        current_since: None,
        equal: Vec::new(),
        known: Vec::new(),
        attach_required: true,
        holder: false,
        twins: Vec::new(),
        held_by: None,
    }
}

fn source(driver: &str, attributes: &[(&str, &str)]) -> CsiSource {
    let attributes = attributes.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
    CsiSource { driver: driver.into(), handle: "h".into(), attributes }
}

/// Driver, attributes of the volume, the node's kernel, and what becomes of the mount.
type Row<'a> = (&'a str, &'a [(&'a str, &'a str)], &'a str, Risk);

#[test]
fn what_dies_with_the_plugin_pod_is_known_for_ceph_csi() {
    let old: Str = "4.4.0-1".into();
    let table: [Row<'_>; 13] = [
        (CEPHFS, &[("mounter", "fuse")], NEW, Risk::Fuse),
        (CEPHFS, &[("mounter", "kernel")], NEW, Risk::Kernel),
        (CEPHFS, &[], NEW, Risk::Kernel),
        // Wanted, but not available: the driver takes what there is.
        (CEPHFS, &[("mounter", "kernel")], "4.4.0-1", Risk::KernelTooOld { kernel: old.clone() }),
        (CEPHFS, &[], "4.17.0", Risk::Kernel),
        (CEPHFS, &[], "3.10.0-1062.el7.x86_64", Risk::Kernel),
        (CEPHFS, &[], "3.10.0-957.el7.x86_64", Risk::KernelTooOld { kernel: "3.10.0-957.el7.x86_64".into() }),
        (CEPHFS, &[], "3.10.0-1062.x86_64", Risk::KernelTooOld { kernel: "3.10.0-1062.x86_64".into() }),
        (RBD, &[("mounter", "rbd-nbd")], NEW, Risk::Nbd { attached: false }),
        (RBD, &[("tryOtherMounters", "true")], NEW, Risk::MayBeNbd),
        (RBD, &[("mounter", "rbd")], NEW, Risk::Kernel),
        ("nfs.csi.ceph.com", &[("mounter", "fuse")], NEW, Risk::Kernel),
        ("csi.example.com", &[], NEW, Risk::UnknownDriver),
    ];
    for (driver, attributes, kernel, wanted) in table {
        assert_eq!(risk(&csi(driver), &source(driver, attributes), kernel, false), wanted, "{driver} {attributes:?} {kernel}");
    }
    assert_eq!(
        risk(&csi(RBD), &source(RBD, &[("mounter", "rbd-nbd")]), NEW, true),
        Risk::Nbd { attached: true },
        "what is attached may heal, and is drained all the same"
    );
}

#[test]
fn the_templates_flags_and_network_count_and_so_does_the_policy_for_other_drivers() {
    let with = |change: &dyn Fn(&mut TemplateRecord)| {
        let mut csi = csi(CEPHFS);
        change(&mut csi.set.as_mut().unwrap().template);
        csi
    };
    let forced = with(&|template| template.forces_kernel_client = true);
    assert_eq!(risk(&forced, &source(CEPHFS, &[]), "4.4.0", false), Risk::Kernel);
    assert_eq!(risk(&forced, &source(CEPHFS, &[("mounter", "fuse")]), "4.4.0", false), Risk::Fuse);
    let pod_network = with(&|template| template.host_network = false);
    assert_eq!(risk(&pod_network, &source(CEPHFS, &[]), NEW, false), Risk::PodNetwork);
    // Where a holder keeps the network namespace, kernel mounts hang on that one's pod, and every mount does.
    let held = |change: &dyn Fn(&mut CsiView)| {
        let mut csi = with(&|template| template.host_network = false);
        change(&mut csi);
        csi
    };
    let plugin = held(&|csi| csi.held_by = Some(key("ns/csi-cephfsplugin-holder-main")));
    assert_eq!(risk(&plugin, &source(CEPHFS, &[]), NEW, false), Risk::Kernel);
    assert_eq!(risk(&plugin, &source(CEPHFS, &[("mounter", "fuse")]), NEW, false), Risk::Fuse);
    let holder = held(&|csi| csi.holder = true);
    assert_eq!(risk(&holder, &source(CEPHFS, &[]), NEW, false), Risk::Holder);
    assert_eq!(risk(&holder, &source(CEPHFS, &[("mounter", "fuse")]), NEW, false), Risk::Holder);
    // The name says nothing, the flag does.
    let renamed = with(&|template| template.driver_type = Some("rbd".into()));
    assert_eq!(risk(&renamed, &source(CEPHFS, &[("mounter", "fuse")]), NEW, false), Risk::Kernel);

    let mut named = csi("csi.example.com");
    named.plugin.at_risk_attributes.insert("backend".into(), "fuse".into());
    let attribute = Risk::Attribute { key: "backend".into(), value: "fuse".into() };
    assert_eq!(risk(&named, &source("csi.example.com", &[("backend", "fuse")]), NEW, false), attribute);
    assert_eq!(risk(&named, &source("csi.example.com", &[("backend", "block")]), NEW, false), Risk::NotNamed);
}

struct Story {
    pod: PodRecord,
    claims: VolumeClaims,
    volumes: Volumes,
}

impl Story {
    /// A running pod with a bound claim `data` to volume `pv`.
    fn new() -> Self {
        let claim = volume_claim("shop/data").to_volume("pv").build();
        let record = volume("pv", CEPHFS, "shop/data").attribute("mounter", "fuse").build();
        Self {
            pod: pod("shop/app").on("n1").volume_claim("data").owned_by("ReplicaSet", "app").build(),
            claims: [(claim.key.clone(), Arc::new(claim))].into(),
            volumes: [(record.name.clone(), Arc::new(record))].into(),
        }
    }

    fn claim(mut self, change: impl FnOnce(&mut VolumeClaimRecord)) -> Self {
        change(Arc::make_mut(self.claims.values_mut().next().unwrap()));
        self
    }

    fn volume(mut self, change: impl FnOnce(&mut VolumeRecord)) -> Self {
        change(Arc::make_mut(self.volumes.values_mut().next().unwrap()));
        self
    }

    fn pod(mut self, change: impl FnOnce(&mut PodRecord)) -> Self {
        change(&mut self.pod);
        self
    }

    fn source(self, source: PodVolumeSource) -> Self {
        self.pod(|pod| pod.extra.as_mut().unwrap().volumes[0].source = source)
    }

    fn uses(&self) -> Uses {
        let pods = [Arc::new(self.pod.clone())];
        uses(&csi(CEPHFS), pods.iter(), &self.claims, &self.volumes, &[], NEW, Some(at(0)))
    }

    fn reason(&self, drain: VolumeDrain, ahead: Ahead) -> Option<ClaimReason> {
        reason(&self.pod, &self.uses(), drain, ahead)
    }

    /// `claimant`, `unresolved`, or `no`.
    fn word(&self) -> &'static str {
        match self.reason(VolumeDrain::AtRisk, Ahead::Replacement) {
            Some(ClaimReason::Volume { .. }) => "claimant",
            Some(ClaimReason::UnresolvedVolume { .. }) => "unresolved",
            Some(_) => "another",
            None => "no",
        }
    }
}

#[test]
fn every_volume_source_is_followed_with_a_kubelets_identity_checks() {
    let fuse = || source(CEPHFS, &[("mounter", "fuse")]);
    let other = || source("ebs.csi.aws.com", &[]);
    let ephemeral = || PodVolumeSource::Claim { claim: "data".into(), ephemeral: true };
    let own = |story: Story| {
        let uid = story.pod.meta.uid.clone();
        story.claim(|claim| claim.pod = Some(uid))
    };
    let table = [
        ("claim", Story::new(), "claimant"),
        ("inline", Story::new().source(PodVolumeSource::Inline(fuse())), "claimant"),
        ("inline of another driver", Story::new().source(PodVolumeSource::Inline(other())), "no"),
        ("generic ephemeral", own(Story::new().source(ephemeral())), "claimant"),
        ("generic ephemeral of another pod", Story::new().source(ephemeral()), "unresolved"),
        ("in-tree of another driver", Story::new().source(PodVolumeSource::Migrated { driver: "ebs.csi.aws.com".into() }), "no"),
        ("volume of another driver", Story::new().volume(|it| it.csi = Some(other())), "no"),
        ("no CSI volume", Story::new().volume(|it| it.csi = None), "no"),
        ("kernel mount", Story::new().volume(|it| it.csi = Some(source(CEPHFS, &[]))), "no"),
        ("released under a running pod", Story::new().volume(|it| it.released = true), "claimant"),
        ("claim deleted", Story { claims: VolumeClaims::new(), ..Story::new() }, "unresolved"),
        ("claim not bound", Story::new().claim(|it| it.volume = None), "unresolved"),
        ("volume deleted", Story { volumes: Volumes::new(), ..Story::new() }, "unresolved"),
        ("bound anew by name", Story::new().claim(|it| it.meta.uid = Uid::from("another")), "unresolved"),
        ("volume of another claim", Story::new().volume(|it| it.claim.as_mut().unwrap().0 = key("shop/other")), "unresolved"),
        ("volume without a claim", Story::new().volume(|it| it.claim = None), "unresolved"),
        (
            "waits for a claim that is not there",
            Story { claims: VolumeClaims::new(), ..Story::new() }.pod(|it| it.phase = PodPhase::Pending),
            "no",
        ),
        ("being started", Story::new().pod(|it| it.phase = PodPhase::Pending), "claimant"),
        ("ended", Story::new().pod(|it| it.phase = PodPhase::Succeeded), "no"),
        ("no container mounts it", Story::new().pod(|it| it.extra.as_mut().unwrap().volumes[0].used = false), "no"),
    ];
    for (name, story, wanted) in table {
        assert_eq!(story.word(), wanted, "{name}");
    }
}

#[test]
fn a_migrated_in_tree_source_is_its_drivers() {
    let mut csi = csi("ebs.csi.aws.com");
    csi.set = None;
    let story = Story::new().source(PodVolumeSource::Migrated { driver: "ebs.csi.aws.com".into() });
    let found = uses(&csi, [Arc::new(story.pod.clone())].iter(), &story.claims, &story.volumes, &[], NEW, None);
    assert_eq!(found.uses.len(), 1);
    assert_eq!(found.uses[0].risk, Risk::UnknownDriver);
}

#[test]
fn the_policy_says_whether_all_leave_or_none() {
    let kernel = Story::new().volume(|it| it.csi = Some(source(CEPHFS, &[])));
    assert!(kernel.reason(VolumeDrain::All, Ahead::Replacement).is_some());
    assert!(kernel.reason(VolumeDrain::AtRisk, Ahead::Replacement).is_none());
    assert!(Story::new().reason(VolumeDrain::None, Ahead::Replacement).is_none());
    let lost = Story { volumes: Volumes::new(), ..Story::new() };
    assert!(lost.reason(VolumeDrain::None, Ahead::Replacement).is_none());
}

#[test]
fn only_a_mount_older_than_the_plugins_process_is_dead() {
    let mounted = |at| Story::new().pod(|pod| pod.extra.as_mut().unwrap().mounted = Some(at));
    let dead = |story: &Story| story.reason(VolumeDrain::AtRisk, Ahead::Repair).is_some();
    assert!(dead(&mounted(at(-1))));
    assert!(!dead(&mounted(at(0))), "mounted by this process");
    assert!(!dead(&mounted(at(-1)).pod(|pod| pod.phase = PodPhase::Pending)), "it waits for its mount still");
    assert!(!dead(&mounted(at(-1)).volume(|it| it.csi = Some(source(CEPHFS, &[])))), "the kernel's mount lives on");
}

#[test]
fn what_registers_and_logs_beside_the_plugin_may_restart_without_harm() {
    let container = |name: &str, seconds: i64| ContainerRecord {
        last_exit: None,
        last_message: Default::default(),
        name: name.into(),
        init: false,
        ready: true,
        restarts: 0,
        state: ContainerState::Running { since: Some(at(seconds)) },
    };
    let pod = pod("ns/plugin").on("n1").but(|pod| {
        let all = vec![container("csi-cephfsplugin", 5), container("driver-registrar", 50), container("liveness-prometheus", 60)];
        pod.extra.get_or_insert_default().containers = all;
    });
    assert_eq!(began(&pod.build()), Some(at(5)));
}

#[test]
fn only_what_no_staying_pod_uses_is_awaited_and_what_was_released_before_is_set_aside() {
    let attached_to = |name: &str, pv: &str| Arc::new(attachment(name, CEPHFS, "n1", pv).build());
    let attachments =
        [attached_to("va1", "pv1"), attached_to("va2", "pv2"), attached_to("va3", "pv3"), attached_to("va4", "gone")];
    let record = |name: &str, released: bool| {
        Arc::new(volume(name, CEPHFS, "shop/data").attribute("mounter", "fuse").but(|it| it.released = released).build())
    };
    let volumes: Volumes =
        [("pv1".into(), record("pv1", false)), ("pv2".into(), record("pv2", false)), ("pv3".into(), record("pv3", true))].into();
    let stays = VolumeUse {
        pod: Arc::new(pod("shop/stays").on("n1").build()),
        name: "data".into(),
        claim: None,
        volume: Some("pv2".into()),
        handle: "handle-pv2".into(),
        risk: Risk::Fuse,
        used: true,
        stale: false,
    };
    let mut n1 = node("n1").build();
    n1.csi_volumes = ["handle-pv1", "handle-pv2", "unknown"].map(|handle| (CEPHFS.into(), handle.into())).to_vec();
    let found = attached(&csi(CEPHFS), Some(&n1), &attachments, &volumes, &[&stays]);
    let found: Vec<(Option<&str>, &str, bool)> =
        found.iter().map(|it| (it.attachment.as_deref(), &*it.handle, it.orphan)).collect();
    let wanted =
        [(Some("va1"), "handle-pv1", false), (Some("va3"), "handle-pv3", true), (Some("va4"), "", true), (None, "unknown", true)];
    assert_eq!(found, wanted);
}
