//! The 13 combinations of the labels, and every named problem with its repair.

use std::collections::BTreeSet;

use serde_json::json;

use super::{
    story::Start,
    world::{World, key, module},
};
use crate::kmm::{
    NodeModule, State,
    keys::{self, Label},
    problem::Place,
    records::Toleration,
    tolerations::{self, Trap},
    triple::{Held, Move, Row, Triple},
};

fn world(version: &str) -> World {
    World::new(&Start { module: Some(version.to_owned()), nodes: vec!["1.0".into(), "1.0".into()], ..Start::default() })
}

fn tolerant(version: &str) -> World {
    let mut world = world(version);
    world.tolerate();
    world
}

fn read(world: &World) -> NodeModule {
    world.read("node-a", 0).expect("node-a")
}

/// Text and repair of the problem of this kind.
fn problem(world: &World, kind: &str) -> (String, Vec<String>) {
    let answer = read(world);
    let kinds: Vec<&str> = answer.problems.iter().map(|problem| problem.kind()).collect();
    let problem = answer
        .problems
        .iter()
        .find(|problem| problem.kind() == kind)
        .unwrap_or_else(|| panic!("{kind} in {kinds:?}: {answer:?}"));
    let (kmm, module) = (world.kmm(), module());
    let place = Place { node: "node-a", module: &module, spec: kmm.modules.get(&module) };
    (problem.text(&place), problem.repair(&place))
}

fn absent(world: &World, kind: &str) {
    let answer = read(world);
    assert!(!answer.problems.iter().any(|problem| problem.kind() == kind), "{kind}: {answer:?}");
}

#[test]
fn every_combination_of_the_labels_has_its_row_and_move() {
    let value = |text: &str| (!text.is_empty()).then(|| text.into());
    let rows: &[(&str, &str, &str, u8, Move)] = &[
        ("", "", "", 1, Move::Nothing),
        ("", "1", "1", 2, Move::RemoveSchedule),
        ("", "1", "2", 2, Move::RemoveSchedule),
        ("", "1", "", 3, Move::RemoveLoader),
        ("1", "", "", 4, Move::AddLoader),
        ("1", "1", "", 5, Move::AddSchedule),
        ("1", "1", "1", 6, Move::Nothing),
        ("1", "2", "2", 7, Move::RemoveSchedule),
        ("1", "2", "3", 7, Move::RemoveSchedule),
        ("1", "2", "", 8, Move::RemoveLoader),
        ("", "", "1", 9, Move::Stuck),
        ("1", "", "1", 10, Move::Stuck),
        ("1", "", "2", 11, Move::Stuck),
        ("1", "1", "2", 12, Move::Stuck),
        ("1", "2", "1", 13, Move::Stuck),
    ];
    for (desired, loader, schedule, row, moves) in rows {
        let triple = Triple { desired: value(desired), loader: value(loader), schedule: value(schedule), ..Triple::default() };
        assert_eq!((triple.row(), triple.row().moves()), (Row(*row), *moves), "{triple:?}");
    }
    let all = [Held::Missing, Held::Present, Held::Different];
    let combinations = [false, true]
        .into_iter()
        .flat_map(|desired| all.into_iter().flat_map(move |l| all.into_iter().map(move |s| Row::of(desired, l, s))));
    assert_eq!(combinations.collect::<BTreeSet<Row>>().len(), 13);
}

#[test]
fn an_empty_label_is_a_missing_one_as_kmm_has_it() {
    let mut world = tolerant("1.0");
    world.apply(0, "node node-a want=");
    assert_eq!(read(&world).labels.row(), Row(2));
    assert_eq!(read(&world).wanted, None);
}

#[test]
fn the_stuck_combinations_are_named_and_taking_the_plugin_label_away_moves_kmm_again() {
    for (labels, row) in [
        ("want- worker- schedule=1.0", 9),
        ("worker-", 10),
        ("worker- schedule=2.0", 11),
        ("schedule=2.0", 12),
        ("want=2.0 worker=1.0 schedule=2.0", 13),
    ] {
        let mut world = tolerant("2.0");
        world.apply(0, &format!("node node-a {labels}"));
        world.apply(0, "nmc node-a spec= status=");
        let answer = read(&world);
        assert_eq!((answer.labels.row(), answer.state), (Row(row), State::Stuck), "{answer:?}");
        let (text, repair) = problem(&world, "StuckLabels");
        assert!(text.contains("for ever"), "{text}");
        assert_eq!(repair[1], "kubectl label node node-a beta.kmm.node.kubernetes.io/version-schedule-pod.drv.mod-");
        world.apply(0, "node node-a schedule-");
        assert!(!read(&world).labels.row().stuck(), "{labels}");
    }
}

#[test]
fn loaded_in_the_right_version_is_said_in_one_sentence_and_nothing_is_wrong() {
    let answer = read(&tolerant("1.0"));
    assert_eq!((answer.state, answer.loaded.as_deref(), answer.sentence.as_str()), (State::Loaded, Some("1.0"), "1.0 is loaded"));
    assert!(answer.problems.is_empty(), "{answer:?}");
    assert_eq!(answer.wait, None);
}

#[test]
fn an_unload_that_fails_again_and_again_is_stuck_and_a_reboot_is_the_way_out() {
    let mut world = tolerant("2.0");
    world.apply(0, "node node-a want=2.0 worker- schedule- plugin-ready-");
    world.apply(0, "plugin node-a gone");
    world.apply(0, "nmc node-a spec=");
    assert_eq!(read(&world).state, State::Unloading);
    world.apply(0, "worker node-a create Unload 1.0");
    world.apply(0, "worker node-a Running exit=1");
    world.apply(0, "worker node-a Running restarts=1 CrashLoopBackOff");
    let answer = read(&world);
    assert_eq!((answer.state, answer.loaded), (State::Stuck, None));
    let (text, repair) = problem(&world, "UnloadCrashLoop");
    assert!(text.contains("1 restarts, exit code 1") && text.contains("keeps .ready"), "{text}");
    assert_eq!(repair[0], "kubectl -n drv logs kmm-worker-node-a-mod -c worker --previous");
    assert!(repair[2].contains("reboot the node"), "{repair:?}");
    assert!(answer.sentence.contains("fails again and again"), "{}", answer.sentence);
}

#[test]
fn a_worker_made_again_and_again_is_named() {
    for (action, kind, config) in
        [("Unload", "UnloadMadeAgain", "nmc node-a spec="), ("Load", "LoadMadeAgain", "nmc node-a status=")]
    {
        let mut world = tolerant("1.0");
        world.apply(0, config);
        for at in 0..2 {
            world.apply(at, &format!("worker node-a create {action} 1.0"));
            world.apply(at, "worker node-a Failed");
            world.apply(at, "worker node-a gone");
        }
        world.apply(2, &format!("worker node-a create {action} 1.0"));
        assert_eq!(read(&world).state, State::Stuck);
        let (text, repair) = problem(&world, kind);
        assert!(text.contains("2 ended as Failed within a minute"), "{text}");
        assert!(repair[0].contains("involvedObject.name=kmm-worker-node-a-mod"), "{repair:?}");
        // Between two of them there is none.
        world.apply(3, "worker node-a gone");
        problem(&world, kind);
    }
}

#[test]
fn a_load_that_fails_or_has_no_image_is_named() {
    let mut world = tolerant("1.0");
    world.apply(0, "nmc node-a status=");
    world.apply(0, "worker node-a create Load 1.0");
    assert_eq!(read(&world).state, State::Loading);
    world.apply(0, "worker node-a Pending ImagePullBackOff");
    assert_eq!(read(&world).state, State::Stuck);
    assert!(problem(&world, "WorkerImageMissing").0.contains("ImagePullBackOff"));
    world.apply(0, "worker node-a Running restarts=4 CrashLoopBackOff");
    assert!(problem(&world, "LoadCrashLoop").1[0].contains("logs"));
    assert_eq!(read(&world).state, State::Stuck);
}

#[test]
fn the_short_not_ready_trap_is_seen_before_it_closes_and_while_it_does() {
    let mut world = world("1.0");
    world.apply(0, "node node-a Ready=Unknown taints=unreachable:NoExecute ready- version.ready- target-");
    world.apply(0, "nmc node-a spec=");
    world.apply(0, "worker node-a create Unload 1.0");
    let answer = read(&world);
    assert_eq!((answer.state, answer.loaded), (State::Unknown, None));
    let (text, repair) = problem(&world, "UnloadOnSilentNode");
    assert!(text.contains("when its kubelet comes back in the same boot"), "{text}");
    assert!(repair[1].contains("/spec/tolerations"), "{repair:?}");
    world.apply(0, "node node-a Ready=True taints= ready= version.ready=1.0");
    world.apply(0, "nmc node-a spec=1.0@1.0");
    let answer = read(&world);
    assert_eq!((answer.state, answer.loaded), (State::Reloading, None), "never loaded while the unload is there");
    assert!(problem(&world, "UnloadNotCancelled").1.contains(&"kubectl -n drv delete pod kmm-worker-node-a-mod".to_owned()));
    problem(&world, "ReadyIsWrong");
    world.apply(0, "worker node-a Running");
    let (text, repair) = problem(&world, "UnloadNotCancelled");
    assert!(text.contains("is running") && !repair.iter().any(|line| line.contains("delete pod")), "{repair:?}");
}

#[test]
fn an_unload_beside_the_plugin_is_named_with_the_pod() {
    let mut world = world("1.0");
    world.apply(0, "node node-a worker-");
    world.apply(0, "nmc node-a spec=");
    world.apply(0, "worker node-a create Unload 1.0");
    let (text, repair) = problem(&world, "UnloadUnderPlugin");
    assert!(
        text.ends_with("plugin-node-a is on the node while it runs") && repair[0].contains("not KMM's own labels"),
        "{text} {repair:?}"
    );
    problem(&world, "StuckLabels");
}

#[test]
fn what_began_an_unload_is_named_and_the_advice_is_about_that() {
    let mut tainted = world("1.0");
    tainted.apply(0, "node node-a taints=unschedulable:NoSchedule ready- version.ready-");
    tainted.apply(0, "nmc node-a spec=");
    tainted.apply(0, "worker node-a create Unload 1.0");
    let (text, repair) = problem(&tainted, "UnloadUnderPlugin");
    assert!(
        text.contains("taint node.kubernetes.io/unschedulable:NoSchedule, which the Module does not tolerate, began it"),
        "{text}"
    );
    assert!(repair[1].contains("patch modules") && !repair[0].contains("label"), "{repair:?}");
    tainted.apply(0, "worker node-a Running exit=1");
    tainted.apply(0, "worker node-a Running restarts=1 CrashLoopBackOff");
    let (text, repair) = problem(&tainted, "UnloadCrashLoop");
    assert!(text.contains("began it") && !text.contains("keeps .ready"), "{text}");
    assert!(repair.last().is_some_and(|line| line.contains("patch modules")), "{repair:?}");
    // The image was changed under its version.
    let mut edited = tolerant("1.0");
    edited.apply(0, "module edit 1.0 1.1");
    edited.apply(0, "nmc node-a spec=1.1@1.0");
    edited.apply(0, "worker node-a create Unload 1.0");
    let (text, repair) = problem(&edited, "UnloadUnderPlugin");
    assert!(text.ends_with("another image under the same version began it"), "{text}");
    assert!(repair[0].contains("version and image in one edit"), "{repair:?}");
}

#[test]
fn a_load_that_was_cut_off_is_not_taken_for_absent() {
    let mut world = tolerant("1.0");
    world.apply(0, "node node-a want- worker- schedule- ready- version.ready- plugin-ready-");
    world.apply(0, "plugin node-a gone");
    world.apply(0, "nmc node-a spec= status=");
    assert_eq!(read(&world).state, State::Absent);
    world.apply(0, "worker node-a create Load 1.0");
    world.apply(0, "worker node-a marked");
    assert_eq!(read(&world).state, State::Unknown);
    world.apply(0, "worker node-a gone");
    assert_eq!(read(&world).state, State::Unknown);
    assert!(problem(&world, "LoadCutOff").1[0].contains("grep '^mod ' /proc/modules"));
    world.apply(0, "node node-a Ready=True boot=boot-2");
    assert_eq!(read(&world).state, State::Absent, "a reboot is proof");
}

fn empty_node(world: &mut World, version: &str) {
    world
        .apply(0, &format!("node node-a want={version} worker={version} schedule={version} ready- version.ready- plugin-ready-"));
    world.apply(0, "plugin node-a gone");
    world.apply(0, "nmc node-a spec= status=");
}

#[test]
fn an_image_that_cannot_be_pulled_is_named_with_what_its_pull_pod_says() {
    let mut world = tolerant("2.0");
    empty_node(&mut world, "2.0");
    assert_eq!(read(&world).state, State::Starting);
    world.apply(0, "mic 1.0");
    assert_eq!(read(&world).state, State::Waiting);
    world.apply(0, "pull 2.0 create");
    world.apply(0, "pull 2.0 Pending ImagePullBackOff");
    let (text, repair) = problem(&world, "ImageMissing");
    assert!(text.contains("mod:2.0-6.1.0-test") && text.contains("ImagePullBackOff"), "{text}");
    assert!(repair[0].contains("image-owner=mod"), "{repair:?}");
}

#[test]
fn a_kernel_that_no_mapping_fits_is_named() {
    let mut world = tolerant("1.0");
    empty_node(&mut world, "1.0");
    world.modules.as_mut().expect("a Module")["spec"]["moduleLoader"]["container"]["kernelMappings"] =
        json!([{"literal": "5.0"}, {"regexp": "(["}]);
    assert_eq!(read(&world).state, State::Stuck);
    assert!(problem(&world, "NoKernelMapping").0.contains("6.1.0-test"));
}

#[test]
fn a_typo_is_told_from_an_old_version_that_was_lost() {
    let mut world = tolerant("1.0");
    empty_node(&mut world, "9.9");
    assert_eq!(read(&world).state, State::Stuck);
    let (text, repair) = problem(&world, "UnknownVersion");
    assert!(text.contains("wants 9.9, which nothing knows (the Module is at 1.0)"), "{text}");
    assert_eq!(repair[0], "kubectl label node node-a kmm.node.kubernetes.io/version-module.drv.mod=1.0 --overwrite");
    let mut world = tolerant("2.0");
    empty_node(&mut world, "1.0");
    assert_eq!(read(&world).state, State::Stuck);
    let (text, repair) = problem(&world, "OldVersionLost");
    assert!(text.contains("does not load it again"), "{text}");
    assert!(repair[1].ends_with("=2.0 --overwrite") && repair[3].ends_with("=1.0 --overwrite"), "{repair:?}");
    absent(&world, "UnknownVersion");
}

#[test]
fn a_node_on_the_old_version_is_exposed_unless_the_module_tolerates_all() {
    let (text, repair) = problem(&world("2.0"), "OldVersionExposed");
    assert!(text.contains("a cordon, a drain, or a moment of NotReady unloads 1.0 here for good"), "{text}");
    assert_eq!(
        repair[0],
        r#"kubectl -n drv patch modules.kmm.sigs.x-k8s.io mod --type=json -p '[{"op":"add","path":"/spec/tolerations","value":[{"operator":"Exists"}]}]'"#
    );
    absent(&tolerant("2.0"), "OldVersionExposed");
    assert_eq!(read(&world("2.0")).state, State::Loaded);
}

#[test]
fn the_toleration_trap_and_the_lines_that_close_it() {
    let toleration = |key: &str, effect: &str| Toleration {
        key: key.into(),
        operator: "Exists".into(),
        effect: effect.into(),
        value: "".into(),
    };
    let all = Trap::of(&[]).expect("a trap");
    assert_eq!((all.cordon, all.not_ready, all.taints.len()), (true, true, 5));
    let cordon = toleration("node.kubernetes.io/unschedulable", "");
    let rest = Trap::of(std::slice::from_ref(&cordon)).expect("a trap");
    assert_eq!((rest.cordon, rest.not_ready, rest.what()), (false, true, "a moment of NotReady"));
    assert_eq!(Trap::of(&[toleration("", "")]), None);
    let only = [cordon, toleration("node.kubernetes.io/not-ready", ""), toleration("node.kubernetes.io/unreachable", "")];
    assert_eq!(Trap::of(&only), None);
    problem(&world("1.0"), "UnloadsOnTaints");
    absent(&tolerant("1.0"), "UnloadsOnTaints");
    assert!(tolerations::LINES.starts_with("  tolerations:\n"));
    let mut kmm = world("1.0").kmm();
    let module = kmm.modules.get_mut(&module()).expect("the Module");
    module.tolerations = vec![toleration("x", "")];
    assert!(tolerations::command(module).contains(r#""path":"/spec/tolerations/-","value":{"operator":"Exists"}"#));
}

#[test]
fn a_taint_that_keeps_the_module_out_is_named_pressure_is_none() {
    let mut world = world("1.0");
    empty_node(&mut world, "1.0");
    world.apply(0, "node node-a cordon taints=unschedulable:NoSchedule");
    assert_eq!(read(&world).state, State::Waiting);
    let (text, repair) = problem(&world, "KeptOut");
    assert!(text.contains("unschedulable:NoSchedule"), "{text}");
    assert_eq!(repair[0], "kubectl uncordon node-a");
    for taints in ["memory-pressure:NoSchedule", "x:PreferNoSchedule"] {
        world.apply(0, &format!("node node-a taints={taints}"));
        absent(&world, "KeptOut");
        assert_eq!(read(&world).state, State::Starting);
    }
}

#[test]
fn labels_without_a_module_are_named_with_the_command_that_removes_them() {
    let mut world = tolerant("1.0");
    empty_node(&mut world, "1.0");
    world.apply(0, "module finalizer-");
    assert_eq!(read(&world).state, State::Stuck);
    let (_, repair) = problem(&world, "NoModule");
    assert_eq!(
        repair,
        [
            "kubectl label node node-a kmm.node.kubernetes.io/version-module.drv.mod- beta.kmm.node.kubernetes.io/version-schedule-pod.drv.mod- \
          beta.kmm.node.kubernetes.io/version-worker-pod.drv.mod-"
        ]
    );
}

#[test]
fn a_module_without_version_is_named() {
    let mut world = World::new(&Start::default());
    world.apply(0, "module create - 1.0");
    world.apply(0, "mic 1.0");
    world.apply(0, "nmc node-a spec=1.0@- status=1.0@-#boot-1");
    let answer = read(&world);
    assert_eq!((answer.state, answer.loaded.as_deref()), (State::Loaded, Some("mod:1.0-6.1.0-test")));
    assert!(problem(&world, "NoVersion").1[0].contains("delete the Module"));
}

#[test]
fn image_and_version_must_change_together() {
    let mut world = tolerant("1.0");
    world.apply(0, "module edit 1.0 1.1");
    world.apply(0, "nmc node-a spec=1.1@1.0");
    let answer = read(&world);
    assert_eq!((answer.state, answer.loaded), (State::Reloading, None));
    assert!(problem(&world, "ImageChanged").0.contains("same version 1.0 (mod:1.0-6.1.0-test to mod:1.1-6.1.0-test)"));
    let mut world = tolerant("1.0");
    world.apply(0, "module edit 2.0 1.0");
    assert!(problem(&world, "VersionWithoutImage").0.contains("nodes will report 2.0 with the old bits"));
    assert_eq!(read(&world).state, State::Loaded);
}

#[test]
fn a_reboot_is_seen_by_the_boot_id_alone() {
    let mut world = tolerant("1.0");
    world.apply(0, "node node-a Ready=True boot=boot-2");
    let answer = read(&world);
    assert_eq!((answer.state, answer.loaded), (State::Reloading, None));
    assert!(answer.sentence.contains("rebooted since the load"), "{}", answer.sentence);
    assert!(problem(&world, "ReadyIsWrong").0.contains("has rebooted since the load"));
}

#[test]
fn a_new_kernel_under_an_old_version_keeps_the_old_image() {
    let mut world = tolerant("2.0");
    absent(&world, "OldKernelKept");
    world.kernel("node-a", "6.2.0-test");
    assert!(
        problem(&world, "OldKernelKept").0.contains("the node runs kernel 6.2.0-test, and KMM keeps the image for 6.1.0-test")
    );
    let mut world = tolerant("1.0");
    world.kernel("node-a", "6.2.0-test");
    absent(&world, "OldKernelKept");
}

#[test]
fn names_that_kmm_confuses_are_named() {
    let mut kmm = tolerant("1.0").kmm();
    let node = tolerant("1.0").node_record("node-a").expect("node-a");
    let template = kmm.modules.get(&module()).expect("the Module").clone();
    let kinds = |kmm: &crate::kmm::Kmm, key: &crate::api::ObjectKey| -> Vec<&'static str> {
        kmm.on(&node, key, Default::default()).problems.iter().map(|problem| problem.kind()).collect()
    };
    let mut add = |namespace: &str, name: &str| {
        let key = crate::api::ObjectKey::new(namespace, name);
        kmm.modules.insert(key.clone(), crate::kmm::records::ModuleRecord { key: key.clone(), ..template.clone() });
        key
    };
    let (dotted, long) = (add("drv", "my.mod"), add("drv", &"m".repeat(40)));
    let (one, _) = (add("a", "b-c"), add("a-b", "c"));
    let (plain, _) = (add("ns", "x"), add("ns", "x.version"));
    assert!(kinds(&kmm, &dotted).contains(&"DottedName"));
    assert!(kinds(&kmm, &long).contains(&"LongName"));
    assert!(kinds(&kmm, &one).contains(&"MixedUp"));
    assert!(kinds(&kmm, &plain).contains(&"SharedReadyLabel"));
    assert!(kinds(&kmm, &module()).is_empty());
}

#[test]
fn labels_of_an_older_kmm_are_read_and_named() {
    let mut world = tolerant("1.0");
    let labels = world.nodes.get_mut("node-a").expect("node-a")["metadata"]["labels"].as_object_mut().expect("labels");
    labels.remove(&key(Label::Schedule));
    labels.insert("beta.kmm.node.kubernetes.io/version-device-plugin.drv.mod".to_owned(), json!("1.0"));
    assert_eq!(read(&world).labels.row(), Row(6));
    assert!(problem(&world, "OutdatedLabels").1[1].contains("version-device-plugin.drv.mod-"));
}

#[test]
fn a_plugin_that_is_not_ready_or_has_lost_its_daemon_set_is_named() {
    let mut world = tolerant("1.0");
    world.apply(0, "plugin node-a Running restarts=3 CrashLoopBackOff");
    assert_eq!(problem(&world, "PluginNotReady").1, ["kubectl -n drv logs plugin-node-a"]);
    let mut world = tolerant("2.0");
    absent(&world, "PluginSetCollected");
    world.apply(0, "set 1.0 gone");
    assert!(problem(&world, "PluginSetCollected").1[0].ends_with("=2.0 --overwrite"));
    let mut world = tolerant("1.0");
    let mut twin = world.sets["1.0"].clone();
    twin["metadata"]["name"] = json!("mod-twin");
    world.sets.insert("twin".to_owned(), twin);
    assert_eq!(problem(&world, "PluginSetTwins").1, ["kubectl -n drv delete daemonset mod-twin"]);
}

#[test]
fn how_long_kmm_still_waits_is_said_with_what_wakes_it() {
    let mut world = tolerant("2.0");
    world.apply(0, "node node-a want- schedule- plugin-ready-");
    world.apply(0, "plugin node-a marked");
    let wait = world.read("node-a", 12_000).and_then(|answer| answer.wait).expect("a wait");
    assert_eq!((wait.until.as_deref(), wait.wake), (Some("the end of plugin-node-a"), None));
    world.apply(0, "plugin node-a gone");
    let answer = world.read("node-a", 12_000).expect("node-a");
    assert_eq!(answer.state, State::Stopping);
    assert!(answer.sentence.contains("next try in about 8.5 s"), "{}", answer.sentence);
    let wait = answer.wait.expect("a wait");
    assert_eq!((wait.until, wait.more), (None, Some(std::time::Duration::from_millis(8_475))));
    assert_eq!(
        wait.wake.as_deref(),
        Some("kubectl label node node-a kmm.node.kubernetes.io/version-module.drv.mod=2.0 --overwrite")
    );
    let mut world = tolerant("2.0");
    world.apply(0, "node node-a want=2.0 worker- schedule-");
    world.apply(0, "plugin node-a gone");
    world.apply(0, "nmc node-a spec=");
    let wait = world.read("node-a", 700).and_then(|answer| answer.wait).expect("a wait");
    assert_eq!(wait.until.as_deref(), Some("the end of the unload (.ready)"));
}

#[test]
fn the_answer_is_total_and_never_claims_a_load_without_its_proof() {
    let labels: &'static [&'static str] = &["", "1.0", "2.0"];
    let mut count = 0;
    for (want, worker, schedule) in
        labels.iter().flat_map(|w| labels.iter().flat_map(move |l| labels.iter().map(move |s| (w, l, s))))
    {
        for spec in ["", "1.0@1.0", "2.0@2.0"] {
            for status in ["", "1.0@1.0#boot-1", "1.0@1.0#boot-0", "2.0@2.0#boot-1"] {
                for pod in ["", "Load 1.0", "Unload 1.0"] {
                    for ready in ["True", "False", "Unknown"] {
                        let mut world = World::new(&Start::default());
                        world.apply(0, "module create 2.0 2.0");
                        for (word, value) in [("want", want), ("worker", worker), ("schedule", schedule)] {
                            if !value.is_empty() {
                                world.apply(0, &format!("node node-a {word}={value}"));
                            }
                        }
                        world.apply(0, &format!("node node-a Ready={ready}"));
                        world.apply(0, &format!("nmc node-a spec={spec} status={status}"));
                        if !pod.is_empty() {
                            world.apply(0, &format!("worker node-a create {pod}"));
                        }
                        let answer = read(&world);
                        let proof =
                            pod.is_empty() && ready != "Unknown" && !spec.is_empty() && status == format!("{spec}#boot-1");
                        assert_eq!(answer.loaded.is_some(), proof, "{answer:?}");
                        assert!(answer.state != State::Loaded || proof, "{answer:?}");
                        let in_kernel = status.ends_with("#boot-1");
                        assert!(answer.state != State::Absent || (!in_kernel && pod.is_empty()), "{answer:?}");
                        assert!(!answer.sentence.is_empty());
                        count += 1;
                    }
                }
            }
        }
    }
    assert_eq!(count, 27 * 3 * 4 * 3 * 3);
    assert_eq!(keys::PREFIX, "kmm.node.kubernetes.io/");
}
