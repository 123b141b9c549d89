//! What is refused before anything is written, each with its reason.

use super::*;

/// Queued, its turn has come: what preflight says.
fn asked(fleet: FleetBuilder) -> FleetBuilder {
    fleet.with(handoff(KEY, "n1").to("2.0")).with(lease("me"))
}

#[track_caller]
fn refused(fleet: FleetBuilder, kind: BlockerKind, words: &str) {
    let mut fleet = asked(fleet);
    let mut observed = Observed::default();
    decide_at(&mut fleet, &mut observed, 0);
    let said = said(decide_at(&mut fleet, &mut observed, NOW));
    assert!(said.iter().any(|(of, message)| *of == kind.word() && message.contains(words)), "{kind:?} {words:?}: {said:?}");
}

#[test]
fn nothing_speaks_against_the_story() {
    assert!(matches!(acts(asked(story())), Op::Admit(_)));
}

#[test]
fn a_module_without_a_version_is_refused() {
    let unversioned = ModuleRecord { version: None, ..module("2.0") };
    refused(story().with(unversioned), BlockerKind::ComponentRefused, "has no moduleLoader.container.version");
}

#[test]
fn a_label_that_names_no_known_version_is_refused_and_no_order() {
    let typo = || story().with(labelled("9.9", "1.0", "1.0"));
    refused(typo(), BlockerKind::UnknownVersion, "9.9");
    // Without a handoff it is said, and nothing is made of it.
    waits_for(typo().with(config(None, None)), BlockerKind::UnknownVersion, "9.9");
}

#[test]
fn an_unknown_target_and_one_that_the_module_has_left_behind_are_refused() {
    let to = |version: &str| story().with(handoff(KEY, "n1").to(version)).with(lease("me"));
    waits_for(to("7.7"), BlockerKind::UnknownVersion, "7.7 is no version of the Module; known are 1.0, 2.0");
    let old = to("1.0").with(at_version("2.0")).with(config(Some("2.0"), Some(("2.0", "boot-1"))));
    let old = old.with(crate::handoff::kmm_module::tests::plugin_pod("2.0")).with(daemon("1.0"));
    waits_for(old, BlockerKind::KmmVersion, "1.0 comes only once it is in the Module again");
}

/// A DaemonSet of KMM's for this version: something that knows it.
fn daemon(version: &str) -> Record {
    let mut set =
        versioned_daemon_set(&key(KEY), crate::api::versioned::DaemonSetRole::Plugin, version, &component(KEY).block("1"));
    set.key = ObjectKey::new("drv", format!("mod-device-plugin-{version}"));
    let labels: std::collections::BTreeMap<Str, Str> =
        [(keys::MODULE_NAME.into(), "mod".into()), (label(Label::Schedule).into(), version.into())].into();
    set.labels = labels.into();
    set.annotations.clear();
    Record::DaemonSet(set)
}

#[test]
fn kmm_absent_or_forbidden_is_named_and_other_components_go_on() {
    let mut fleet = story();
    let why = "the server does not serve modules.kmm.sigs.x-k8s.io";
    fleet.fleet.set_watch(
        Kind::KmmModule,
        crate::fleet::follow::WatchStatus {
            required: false,
            state: crate::fleet::view::WatchState::Unavailable { why: why.into() },
            last_event: None,
            errors: 1,
        },
    );
    let view = fleet.project(at(0));
    assert!(view.synced, "nothing else waits for it");
    let refusals = &view.components[&key(KEY)].refusals;
    assert!(refusals.iter().any(|it| it.contains("Kernel Module Management cannot be read") && it.contains(why)), "{refusals:?}");
}

#[test]
fn a_kmm_of_the_first_generation_is_refused() {
    let first = at_version("1.0").label(&Label::Loader.key(&module_key(), Era::First).unwrap(), "1.0");
    refused(story().with(first), BlockerKind::PreflightRefused, "KMM 1.x");
    let both = at_version("1.0").label(&Label::Schedule.key(&module_key(), Era::Second).unwrap(), "1.0");
    refused(story().with(both), BlockerKind::PreflightRefused, "version-device-plugin");
}

#[test]
fn version_and_image_must_change_together() {
    let same_image = ModuleRecord { image: Some("mod:1.0".into()), ..module("2.0") };
    let there = ImagesRecord { states: [("mod:1.0".into(), "Exists".into())].into(), ..images("2.0", "Exists") };
    refused(story().with(same_image).with(there), BlockerKind::KmmVersion, "old bits");
    let mut changed = config(Some("1.0"), Some(("1.0", "boot-1")));
    changed.spec[0].image = "mod:other".into();
    refused(story().with(changed), BlockerKind::KmmVersion, "ImageChanged");
}

#[test]
fn an_image_that_is_not_there_and_a_kernel_that_no_mapping_fits_are_refused() {
    refused(story().with(images("2.0", "NeedsBuilding")), BlockerKind::KmmImage, "has not found mod:2.0");
    let unmapped = ModuleRecord { mappings: Vec::new(), ..module("2.0") };
    refused(story().with(unmapped), BlockerKind::KmmImage, "no kernel mapping");
    let mut unlisted = story();
    unlisted.gone(Kind::KmmImages, module_key());
    refused(unlisted, BlockerKind::KmmImage, "Is its operator running?");
}

#[test]
fn the_toleration_trap_is_refused_with_the_lines_to_add() {
    let trap = || ModuleRecord { tolerations: Vec::new(), ..module("2.0") };
    refused(story().with(trap()), BlockerKind::KmmTolerations, "tolerations:\n  - operator: Exists");
    refused(story().with(trap()), BlockerKind::KmmTolerations, "kubectl -n drv patch modules.kmm.sigs.x-k8s.io mod");
    // Nobody closes the node: the trap is told, and not in the way.
    let open = followed(|spec| spec.drain.cordon = crate::api::component::CordonPolicy::Never);
    assert!(matches!(acts(asked(story().with(trap()).with(open))), Op::Admit(_)));
}

#[test]
fn names_that_kmm_takes_for_others_and_two_modules_for_one_device_are_refused() {
    let other = |name: &str| ModuleRecord { key: ObjectKey::new("drv", name), ..module("2.0") };
    refused(story().with(other("twin")), BlockerKind::ComponentRefused, "both load mod on the same nodes");
    refused(story().with(other("mod.version")), BlockerKind::ComponentRefused, "share one label key");
    let apart = ModuleRecord { selector: [("pool".into(), "b".into())].into(), ..other("twin") };
    let here = ModuleRecord { selector: [("pool".into(), "a".into())].into(), ..module("2.0") };
    let pool = |node: NodeBuilder| node.label("pool", "a");
    assert!(matches!(acts(asked(story().with(apart).with(here).with(pool(at_version("1.0"))))), Op::Admit(_)));
    // Two components for one Module, or one device.
    let second = component("drv/second").spec(|spec| {
        spec.version.clear();
        if let Some(module) = &mut spec.kernel_module {
            module.daemon_sets = None;
            module.kmm_module = Some(KmmModule { name: "mod".into() });
        }
    });
    refused(story().with(second), BlockerKind::ComponentRefused, "Module mod is named by NodeComponent drv/second too");
}

#[test]
fn what_kmm_is_doing_for_somebody_else_is_let_end() {
    let moving = || story().with(labelled("1.0", "1.0", "")).with(config(Some("1.0"), None));
    refused(moving().with(worker("Load").phase(PodPhase::Running)), BlockerKind::WorkerPod, "Load pod");
    // An unload that fails because pods hold the module ends when they have left: the handoff sees to that.
    let failing = worker("Unload").phase(PodPhase::Running).waiting("CrashLoopBackOff", "");
    let fleet = story().with(labelled("", "", "")).with(config(None, Some(("1.0", "boot-1")))).with(failing).with(user("a"));
    assert!(matches!(acts(asked(fleet)), Op::Admit(_)));
}

#[test]
fn a_daemon_sets_pod_that_uses_the_device_is_refused() {
    let agent = pod("shop/agent-1").owned_by("DaemonSet", "agent").claims(RESOURCE, 1).on("n1");
    refused(story().with(agent), BlockerKind::DaemonSetClaimant, "no label of KMM's goes before the unload");
}

#[test]
fn a_label_of_lockkeepers_own_scheme_is_no_order_here() {
    let own = at_version("1.0").desired(KEY, "2.0");
    refused(story().with(own), BlockerKind::LabelGarbage, "version-module.drv.mod");
}
