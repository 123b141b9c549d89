//! What goes wrong with KMM on a node, by name, each with a sentence for people and the exact commands that repair it.
//! What was seen of a real KMM is told as it is; what to do is for a person: nothing here is done by lockkeeper.

use super::{
    keys::{self, Era, Label},
    records::{Action, ModuleRecord},
    tolerations,
    triple::Row,
};
use crate::{api::ObjectKey, fleet::records::Str};

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Weight {
    /// Holds for every node, and harms when something else happens.
    Trap,
    /// Will not go on by itself in good order.
    Broken,
}

/// What made KMM unload, as far as the node and the Module show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Begun {
    /// Another image under the version that is there.
    ByImage,
    /// A taint that the Module does not tolerate: a cordon is one too.
    ByTaint(String),
    /// A label that went or changed.
    ByLabel,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Problem {
    /// A combination of the three labels that KMM has no rule for.
    StuckLabels { row: Row, schedule_keys: Vec<String> },
    /// The unload fails again and again in place. `says`: the worker's last words; mostly none.
    UnloadCrashLoop { restarts: u32, exit: Option<i32>, says: Str, begun: Begun },
    /// The load fails again and again in place.
    LoadCrashLoop { restarts: u32, exit: Option<i32>, says: Str },
    /// The worker pod ends as Failed and is made again at once, without back-off.
    WorkerMadeAgain { action: Action, times: u32 },
    /// The worker's image cannot be had on this node.
    WorkerImageMissing { image: Option<Str>, reason: Str },
    /// An Unload pod is there although the module is wanted again: KMM never cancels one.
    UnloadNotCancelled { started: bool },
    /// An Unload pod waits for a silent node, and runs when that comes back.
    UnloadOnSilentNode,
    /// The unload runs while the plugin's pod is on the node.
    UnloadUnderPlugin { pods: Vec<Str>, begun: Begun },
    /// A Load pod was stopped on its way; KMM counts the module as never loaded.
    LoadCutOff,
    /// The image for this kernel is not known to exist.
    ImageMissing { image: String, pull: Option<Str> },
    /// No kernel mapping fits.
    NoKernelMapping { kernel: Str },
    /// The node runs another kernel than KMM's entry for it, and is not at the Module's version: it keeps the old kernel's image.
    OldKernelKept { entry: Str, kernel: Str },
    /// The label names a version that nothing in the cluster knows.
    UnknownVersion { label: Str, module: Option<Str> },
    /// The node wants a version that the Module has left behind, and has lost it: KMM cannot load it again.
    OldVersionLost { version: Str, module: Str },
    /// It runs an older version than the Module's, and the next taint takes it for good.
    OldVersionExposed { version: Str, module: Str, by: &'static str },
    /// The Module lets a cordon or NotReady unload it.
    UnloadsOnTaints { by: &'static str, taints: Vec<String> },
    /// A taint that the Module does not tolerate keeps it off the node.
    KeptOut { taint: String },
    /// The node's version labels have no Module.
    NoModule { keys: Vec<String> },
    /// The Module has no version: labels have no effect, every edit reaches all nodes at once.
    NoVersion,
    /// The image was changed under the same version: all nodes unload and load at once, the plugin running.
    ImageChanged { version: Option<Str>, from: Str, to: Str },
    /// The version was changed and the image was not: nodes will report the new version with the old bits.
    VersionWithoutImage { version: Str, image: Str },
    /// KMM reads the dotted name as another Module and never acts on its version label.
    DottedName { read_as: ObjectKey },
    /// Namespace and name are too long for KMM's label keys.
    LongName { length: usize, limit: usize },
    /// KMM mixes its labels up with another Module's.
    MixedUp { other: ObjectKey },
    /// Its `.ready` label is another Module's `.version.ready`, or the other way round.
    SharedReadyLabel { other: ObjectKey },
    /// Labels of an older generation of KMM.
    OutdatedLabels { keys: Vec<String> },
    /// `.ready` says loaded, and it is not so.
    ReadyIsWrong { why: &'static str },
    /// Module loaded, plugin pod there and not Ready.
    PluginNotReady { pod: Str },
    /// No DaemonSet is left for the version that the node wants: its plugin will not come back.
    PluginSetCollected { version: Str },
    /// Two DaemonSets for one version; KMM never removes the twin.
    PluginSetTwins { names: Vec<Str> },
}

impl Begun {
    fn words(&self) -> String {
        match self {
            Self::ByImage => "; another image under the same version began it".to_owned(),
            Self::ByTaint(taint) => format!("; taint {taint}, which the Module does not tolerate, began it"),
            Self::ByLabel => String::new(),
        }
    }
}

/// What a problem is about.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    pub node: &'a str,
    pub module: &'a ObjectKey,
    pub spec: Option<&'a ModuleRecord>,
}

impl Place<'_> {
    fn worker(&self) -> String {
        keys::worker_pod(self.node, &self.module.name)
    }

    fn set_label(&self, version: &str) -> String {
        let key = Label::Desired.key(self.module, Era::Third).unwrap_or_default();
        format!("kubectl label node {} {key}={version} --overwrite", self.node)
    }

    fn edit(&self) -> String {
        format!("kubectl -n {} edit modules.kmm.sigs.x-k8s.io {}", self.module.namespace, self.module.name)
    }

    fn remove_labels(&self, keys: &[String]) -> String {
        let keys: String = keys.iter().map(|key| format!(" {key}-")).collect();
        format!("kubectl label node {}{keys}", self.node)
    }

    fn logs(&self) -> String {
        format!("kubectl -n {} logs {} -c worker --previous", self.module.namespace, self.worker())
    }

    fn tolerate(&self) -> Vec<String> {
        self.spec.map(tolerations::command).into_iter().collect()
    }
}

impl Problem {
    /// Stable, for metrics and tests.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::StuckLabels { .. } => "StuckLabels",
            Self::UnloadCrashLoop { .. } => "UnloadCrashLoop",
            Self::LoadCrashLoop { .. } => "LoadCrashLoop",
            Self::WorkerMadeAgain { action: Action::Unload, .. } => "UnloadMadeAgain",
            Self::WorkerMadeAgain { action: Action::Load, .. } => "LoadMadeAgain",
            Self::WorkerImageMissing { .. } => "WorkerImageMissing",
            Self::UnloadNotCancelled { .. } => "UnloadNotCancelled",
            Self::UnloadOnSilentNode => "UnloadOnSilentNode",
            Self::UnloadUnderPlugin { .. } => "UnloadUnderPlugin",
            Self::LoadCutOff => "LoadCutOff",
            Self::ImageMissing { .. } => "ImageMissing",
            Self::NoKernelMapping { .. } => "NoKernelMapping",
            Self::OldKernelKept { .. } => "OldKernelKept",
            Self::UnknownVersion { .. } => "UnknownVersion",
            Self::OldVersionLost { .. } => "OldVersionLost",
            Self::OldVersionExposed { .. } => "OldVersionExposed",
            Self::UnloadsOnTaints { .. } => "UnloadsOnTaints",
            Self::KeptOut { .. } => "KeptOut",
            Self::NoModule { .. } => "NoModule",
            Self::NoVersion => "NoVersion",
            Self::ImageChanged { .. } => "ImageChanged",
            Self::VersionWithoutImage { .. } => "VersionWithoutImage",
            Self::DottedName { .. } => "DottedName",
            Self::LongName { .. } => "LongName",
            Self::MixedUp { .. } => "MixedUp",
            Self::SharedReadyLabel { .. } => "SharedReadyLabel",
            Self::OutdatedLabels { .. } => "OutdatedLabels",
            Self::ReadyIsWrong { .. } => "ReadyIsWrong",
            Self::PluginNotReady { .. } => "PluginNotReady",
            Self::PluginSetCollected { .. } => "PluginSetCollected",
            Self::PluginSetTwins { .. } => "PluginSetTwins",
        }
    }

    #[must_use]
    pub fn weight(&self) -> Weight {
        match self {
            Self::OldVersionExposed { .. }
            | Self::UnloadsOnTaints { .. }
            | Self::NoVersion
            | Self::VersionWithoutImage { .. }
            | Self::LongName { .. }
            | Self::SharedReadyLabel { .. }
            | Self::OutdatedLabels { .. }
            | Self::ReadyIsWrong { .. }
            | Self::PluginSetTwins { .. } => Weight::Trap,
            _ => Weight::Broken,
        }
    }

    /// One sentence for people.
    #[must_use]
    pub fn text(&self, place: &Place<'_>) -> String {
        let exit = |exit: &Option<i32>| exit.map_or_else(String::new, |code| format!(", exit code {code}"));
        let words = |says: &Str| if says.trim().is_empty() { String::new() } else { format!(", saying: {}", says.trim()) };
        match self {
            Self::StuckLabels { row, .. } => format!(
                "KMM has no rule for these version labels ({}) and will do nothing, for ever; they were left by a hand or a cut patch",
                match row.0 {
                    9 => "plugin label alone",
                    10 => "plugin label without worker label",
                    11 => "plugin label of another version, without worker label",
                    12 => "plugin label of another version than wanted",
                    _ => "worker label of another version than wanted, plugin label already right",
                }
            ),
            Self::UnloadCrashLoop { restarts, exit: code, says, begun } => format!(
                "the unload fails again and again ({restarts} restarts{}{}); KMM says so nowhere, {}and looks at no label until it ends{}",
                exit(code),
                words(says),
                if matches!(begun, Begun::ByTaint(_)) { "" } else { "keeps .ready, " },
                begun.words()
            ),
            Self::LoadCrashLoop { restarts, exit: code, says } => {
                format!("the load fails again and again ({restarts} restarts{}{}); KMM says so nowhere", exit(code), words(says))
            }
            Self::WorkerMadeAgain { action, times } => format!(
                "KMM makes the {} pod again and again: {times} ended as Failed within a minute, refused or evicted by the kubelet, and KMM says so nowhere",
                action.word()
            ),
            Self::WorkerImageMissing { image, reason } => {
                format!("the worker's image {} cannot be had on this node ({reason})", image.as_deref().unwrap_or("of KMM"))
            }
            Self::UnloadNotCancelled { started } => format!(
                "the module is wanted again, but its Unload pod {}: KMM never cancels one, has put .ready back already, and will take the module out \
                 from under whatever starts now, then load it again",
                if *started { "is running" } else { "still waits to run" }
            ),
            Self::UnloadOnSilentNode => "an Unload pod waits for this silent node: when its kubelet comes back in the same boot the module is unloaded \
                                          and loaded again, with .ready and the plugin there meanwhile"
                .to_owned(),
            Self::UnloadUnderPlugin { pods, begun } => {
                format!("the unload does not wait for the plugin: {} on the node while it runs{}", Self::are(pods), begun.words())
            }
            Self::LoadCutOff => "a Load pod was stopped on its way: KMM counts the module as never loaded and makes no unload; the kernel may hold it unseen"
                .to_owned(),
            Self::ImageMissing { image, pull } => format!(
                "KMM has not found {image} yet{}; until then the node stays without a module, without any message",
                pull.as_ref().map_or_else(String::new, |reason| format!(" (its pull pod: {reason})"))
            ),
            Self::NoKernelMapping { kernel } => format!("no kernel mapping of the Module fits kernel {kernel}: KMM keeps the module off this node"),
            Self::OldKernelKept { entry, kernel } => format!(
                "the node runs kernel {kernel}, and KMM keeps the image for {entry} here: only nodes at the Module's version get a new one"
            ),
            Self::UnknownVersion { label, module } => match module {
                Some(module) => format!("the node wants {label}, which nothing knows (the Module is at {module}): KMM leaves the node empty, without a message"),
                None => format!("the node wants {label}, and the Module has no version"),
            },
            Self::OldVersionLost { version, module } => format!(
                "the node wants {version}, the Module is at {module}: a cordon, taint, NotReady or a change of the label took {version} off, and KMM does not \
                 load it again"
            ),
            Self::OldVersionExposed { version, module, by } => {
                format!("the node runs {version}, the Module is at {module}: {by} unloads {version} here for good")
            }
            Self::UnloadsOnTaints { by, taints } => {
                format!("{by} makes KMM unload the module under whatever runs there: the Module does not tolerate {}", taints.join(", "))
            }
            Self::KeptOut { taint } => format!("KMM keeps the module off this node: the Module does not tolerate its taint {taint}"),
            Self::NoModule { .. } => format!(
                "the node has version labels for {}, and there is no such Module; one made again under this name starts at once",
                place.module
            ),
            Self::NoVersion => "the Module has no version: node labels have no effect, and every edit unloads and loads on all nodes at once".to_owned(),
            Self::ImageChanged { version, from, to } => format!(
                "the image was changed under {} ({from} to {to}): KMM unloads and loads on all nodes at the same time, with .ready and the plugin staying",
                version.as_ref().map_or_else(|| "no version".to_owned(), |version| format!("the same version {version}"))
            ),
            Self::VersionWithoutImage { version, image } => {
                format!("version {version} of the Module has the image of the version before ({image}): nodes will report {version} with the old bits")
            }
            Self::DottedName { read_as } => {
                format!("KMM reads the version label of {} as that of {read_as}, and never acts on it", place.module)
            }
            Self::LongName { length, limit } => format!(
                "namespace and name of the Module have {length} characters together, KMM's label keys have room for {limit}: some cannot be written"
            ),
            Self::MixedUp { other } => format!("KMM takes the version labels of {} and {other} on one node for those of one Module", place.module),
            Self::SharedReadyLabel { other } => {
                format!("{} and {other} share one label key on nodes (ready of the one, version of the other)", place.module)
            }
            Self::OutdatedLabels { keys } => format!("labels of an older KMM, which the present one does not read: {}", keys.join(", ")),
            Self::ReadyIsWrong { why } => format!(".ready is on the node and proves nothing: {why}"),
            Self::PluginNotReady { pod } => format!("the module is loaded, and plugin pod {pod} is not Ready; KMM does nothing about it"),
            Self::PluginSetCollected { version } => {
                format!("KMM has removed the plugin's DaemonSet of {version}, which this node still wants: its plugin does not come back")
            }
            Self::PluginSetTwins { names } => format!("two DaemonSets for one version: {}; KMM never removes the second", names.join(", ")),
        }
    }

    fn are(pods: &[Str]) -> String {
        match pods {
            [one] => format!("{one} is"),
            many => format!("{} are", many.join(", ")),
        }
    }

    /// The repair as a sentence: [`Self::repair`] with what is for reading in its place among the commands. Empty: there is none.
    #[must_use]
    pub fn advice(&self, place: &Place<'_>) -> String {
        let mut text = String::new();
        for line in self.repair(place) {
            let words = line.strip_prefix("# ").unwrap_or(&line);
            let joined = [":", ",", "then"].iter().any(|end| text.ends_with(end));
            text.push_str(match () {
                () if text.is_empty() => "",
                () if joined => " ",
                () if words.starts_with("or ") => ", ",
                () => "; ",
            });
            text.push_str(words);
        }
        text
    }

    /// The commands that repair it, in order, or first show what must be known. Lines that begin with `#` are for reading.
    #[must_use]
    pub fn repair(&self, place: &Place<'_>) -> Vec<String> {
        let (namespace, name, node) = (&place.module.namespace, &place.module.name, place.node);
        let version = place.spec.and_then(|spec| spec.version.as_deref());
        match self {
            Self::StuckLabels { schedule_keys, .. } => vec![
                "# this stops the plugin on the node: move the pods that hold its devices first".to_owned(),
                place.remove_labels(schedule_keys),
            ],
            Self::UnloadCrashLoop { begun, .. } => {
                let mut lines = vec![
                    place.logs(),
                    format!("kubectl get pods -A --field-selector spec.nodeName={node} -o wide"),
                    "# end what holds the module; the next restart of the pod then succeeds. Or reboot the node: with the new boot ID KMM forgets the module at once"
                        .to_owned(),
                    "# putting the label back does not help: KMM does not look at it during an unload".to_owned(),
                ];
                if let Begun::ByTaint(_) = begun {
                    lines.push("# so that no other node follows:".to_owned());
                    lines.extend(place.tolerate());
                }
                lines
            }
            Self::LoadCrashLoop { .. } => vec![
                place.logs(),
                "# give the version an image that loads on this kernel; KMM replaces the crashing pod at once".to_owned(),
                place.edit(),
            ],
            Self::WorkerMadeAgain { .. } => vec![
                format!("kubectl -n {namespace} get events --field-selector involvedObject.name={}", place.worker()),
                format!("kubectl describe node {node}"),
                "# a worker pod requests half a CPU and 64 Mi: make room, or end the pressure that evicts it".to_owned(),
            ],
            Self::WorkerImageMissing { .. } => {
                vec![format!("kubectl -n {namespace} describe pod {}", place.worker()), "# push the image, or repair the pull secret".to_owned()]
            }
            Self::UnloadNotCancelled { started: false } => {
                let mut lines = vec![
                    "# before it starts to run:".to_owned(),
                    format!("kubectl -n {namespace} delete pod {}", place.worker()),
                ];
                lines.extend(place.tolerate());
                lines
            }
            Self::UnloadNotCancelled { started: true } => {
                let mut lines = vec![
                    "# keep the pods that use the device off the node until the unload and the load after it have ended:".to_owned(),
                    format!("kubectl -n {namespace} get pod {} -w", place.worker()),
                ];
                lines.extend(place.tolerate());
                lines
            }
            Self::UnloadOnSilentNode => {
                let mut lines = vec!["# the same will happen to every node that is silent for a moment, unless the Module tolerates it:".to_owned()];
                lines.extend(place.tolerate());
                lines
            }
            Self::UnloadUnderPlugin { begun: Begun::ByImage, .. } => {
                vec!["# let it end; next time change version and image in one edit, and move one node after the other".to_owned()]
            }
            Self::UnloadUnderPlugin { begun: Begun::ByTaint(_), .. } => {
                let mut lines = vec!["# let it end; so that no other node follows:".to_owned()];
                lines.extend(place.tolerate());
                lines
            }
            Self::UnloadUnderPlugin { begun: Begun::ByLabel, .. } => {
                vec!["# let it end; next time take the version label away, not KMM's own labels".to_owned()]
            }
            Self::LoadCutOff => {
                let module = place.spec.and_then(|spec| spec.kernel_module.as_deref()).unwrap_or(name);
                vec![
                    format!("kubectl debug node/{node} -it --image=busybox -- grep '^{} ' /proc/modules", module.replace('-', "_")),
                    "# if it is there: set the label to that version, wait for .ready, and take the label away again; or reboot the node".to_owned(),
                ]
            }
            Self::ImageMissing { .. } => vec![
                format!("kubectl -n {namespace} get pods -l {}={name}", keys::IMAGE_OWNER),
                format!("kubectl -n {namespace} get moduleimagesconfigs.kmm.sigs.x-k8s.io {name} -o yaml"),
                "# push the image: KMM goes on by itself within a second of the pull".to_owned(),
            ],
            Self::NoKernelMapping { .. } => vec!["# add a mapping that fits to kernelMappings:".to_owned(), place.edit()],
            Self::OldKernelKept { .. } => vec![
                "# hand the node over to the Module's version, or boot the old kernel; to go back, put the old version into the Module".to_owned(),
            ],
            Self::UnknownVersion { label, .. } => {
                let mut lines: Vec<String> = version.map(|version| place.set_label(version)).into_iter().collect();
                lines.push(format!("# or, if {label} is an older version that nothing remembers: put it and its image back into the Module"));
                lines
            }
            Self::OldVersionLost { version: old, module } => vec![
                "# forwards:".to_owned(),
                place.set_label(module),
                format!("# or back: first put version {old} and its image back into the Module (nodes at {module} do not move), then"),
                place.set_label(old),
            ],
            Self::OldVersionExposed { .. } | Self::UnloadsOnTaints { .. } => {
                let mut lines = place.tolerate();
                lines.push("# the change restarts the plugin pods of the Module's present version, one node after the other".to_owned());
                lines
            }
            Self::KeptOut { taint } => {
                let mut lines = vec![if taint.starts_with("node.kubernetes.io/unschedulable") {
                    format!("kubectl uncordon {node}")
                } else if taint.starts_with("node.kubernetes.io/") {
                    format!("# {taint} leaves when the node is well again")
                } else {
                    format!("kubectl taint node {node} {taint}-")
                }];
                lines.push("# or let the Module tolerate it:".to_owned());
                lines.extend(place.tolerate());
                lines
            }
            Self::NoModule { keys } => vec![place.remove_labels(keys)],
            Self::NoVersion => vec![
                "# KMM's webhook refuses to add a version: delete the Module (this unloads it on all nodes) and make it again with moduleLoader.container.version"
                    .to_owned(),
            ],
            Self::ImageChanged { .. } => {
                vec!["# next time change version and image in one edit; to stop here, put the old image back:".to_owned(), place.edit()]
            }
            Self::VersionWithoutImage { .. } => vec!["# give the version its own image before any node moves:".to_owned(), place.edit()],
            Self::DottedName { .. } | Self::LongName { .. } => {
                vec!["# make the Module again under a shorter name without dots".to_owned()]
            }
            Self::MixedUp { other } | Self::SharedReadyLabel { other } => {
                vec![format!("# give {} or {other} another name or namespace", place.module)]
            }
            Self::OutdatedLabels { keys } => vec!["# once no DaemonSet selects them any more:".to_owned(), place.remove_labels(keys)],
            Self::ReadyIsWrong { .. } => vec![
                format!("kubectl get nodemodulesconfigs.kmm.sigs.x-k8s.io {node} -o yaml"),
                format!("kubectl get node {node} -o jsonpath='{{.status.nodeInfo.bootID}}'"),
            ],
            Self::PluginNotReady { pod } => vec![format!("kubectl -n {namespace} logs {pod}")],
            Self::PluginSetCollected { version } => vec![
                version_line(version, place),
                format!("# or put version {version} and its image back into the Module: KMM makes the DaemonSet again"),
                place.edit(),
            ],
            Self::PluginSetTwins { names } => names
                .iter()
                .skip(1)
                .map(|twin| format!("kubectl -n {namespace} delete daemonset {twin}"))
                .collect(),
        }
    }
}

/// Moves the node to the Module's present version.
fn version_line(old: &str, place: &Place<'_>) -> String {
    match place.spec.and_then(|spec| spec.version.as_deref()) {
        Some(version) if version != old => place.set_label(version),
        _ => "# the Module names no other version".to_owned(),
    }
}
