//! KMM's label keys on nodes, of all its generations: parsed exactly (the namespace is the first segment, the rest the name), built back,
//! and how long they may be. What KMM itself reads differently is here too.

use crate::api::ObjectKey;

/// Prefix of the labels that people and other programs may use.
pub const PREFIX: &str = "kmm.node.kubernetes.io/";
/// Prefix of the labels that KMM keeps to itself.
pub const BETA: &str = "beta.kmm.node.kubernetes.io/";

/// The label of DaemonSets, worker pods and plugin pods: the Module's name. Their namespace is the Module's.
pub const MODULE_NAME: &str = "kmm.node.kubernetes.io/module.name";
/// `device-plugin` or `dra`; absent on the plugins of KMM 2.0 to 2.6.
pub const ROLE: &str = "kmm.node.kubernetes.io/role";
/// Label of worker pods: `Load` or `Unload`.
pub const WORKER_ACTION: &str = "kmm.node.kubernetes.io/worker-action";
/// How the annotations of worker pods begin.
pub const WORKER: &str = "kmm.node.kubernetes.io/worker-";
/// Annotation of worker pods: what is loaded or unloaded, the `config` of a NodeModulesConfig.
pub const WORKER_CONFIG: &str = "kmm.node.kubernetes.io/worker-config";
/// Annotation of Load pods: the version.
pub const WORKER_VERSION: &str = "kmm.node.kubernetes.io/worker-module-version";
/// Label of pull pods: the Module whose image they try.
pub const IMAGE_OWNER: &str = "kmm.node.kubernetes.io/image-owner";

/// The longest name part of a label key.
const MAX_NAME_PART: usize = 63;

/// What a key on a Node says about one Module.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Label {
    /// The version a person wants; KMM never writes it.
    Desired,
    /// The version that KMM lets be loaded: KMM's copy of it.
    Loader,
    /// The version whose plugin or DRA driver may run: KMM's other copy.
    Schedule,
    /// The plugin may run here: no untolerated taint.
    Target,
    /// As [`Label::Target`] for DRA drivers; proposed, in no release.
    DraTarget,
    /// KMM has seen a load end. Never a proof: it goes with a cordon and stays through a reload.
    Ready,
    /// The version of that load. As little a proof as [`Label::Ready`].
    VersionReady,
    /// The plugin pod is Ready.
    PluginReady,
    /// The DRA driver's pod is Ready.
    DraReady,
}

/// The generations of KMM that name things differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Era {
    /// 1.x: a loader DaemonSet for each version and kernel.
    First,
    /// 2.0 to 2.6: NodeModulesConfig and worker pods.
    Second,
    /// After 2.6: plugins and DRA drivers share one label.
    Third,
}

impl Era {
    pub const ALL: [Self; 3] = [Self::First, Self::Second, Self::Third];

    /// How long namespace and name of a Module may be together so that every key of this generation fits.
    #[must_use]
    pub fn limit(self) -> usize {
        let labels = Label::ALL.iter().filter(|label| **label != Label::DraTarget);
        let fitting = labels.filter_map(|label| label.limit(self)).min();
        fitting.unwrap_or(MAX_NAME_PART)
    }
}

/// How a key is put together from namespace and name.
enum Form {
    /// `<text><namespace>.<name>`
    Before(&'static str),
    /// `<prefix><namespace>.<name><text>`
    After(&'static str, &'static str),
}

/// The words of KMM's keys, newest first where a label was renamed. Longer endings come before those that end them.
const WORDS: &[(Label, &[Era], Form)] = &[
    (Label::Desired, &Era::ALL, Form::Before("kmm.node.kubernetes.io/version-module.")),
    (Label::Loader, &[Era::Second, Era::Third], Form::Before("beta.kmm.node.kubernetes.io/version-worker-pod.")),
    (Label::Loader, &[Era::First], Form::Before("beta.kmm.node.kubernetes.io/version-module-loader.")),
    (Label::Schedule, &[Era::Third], Form::Before("beta.kmm.node.kubernetes.io/version-schedule-pod.")),
    (Label::Schedule, &[Era::First, Era::Second], Form::Before("beta.kmm.node.kubernetes.io/version-device-plugin.")),
    // For two weeks of development.
    (Label::Schedule, &[], Form::Before("beta.kmm.node.kubernetes.io/version-schedule-plugin.")),
    (Label::VersionReady, &[Era::Second, Era::Third], Form::After(PREFIX, ".version.ready")),
    (Label::Ready, &Era::ALL, Form::After(PREFIX, ".ready")),
    (Label::PluginReady, &Era::ALL, Form::After(PREFIX, ".device-plugin-ready")),
    (Label::Target, &[Era::Third], Form::After(PREFIX, ".device-plugin-target")),
    (Label::DraReady, &[Era::Third], Form::After(PREFIX, ".dra-ready")),
    (Label::DraTarget, &[Era::Third], Form::After(PREFIX, ".dra-target")),
];

/// A key of KMM's, understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parsed {
    pub label: Label,
    pub module: ObjectKey,
    /// The generation that wrote the key, where the word tells it.
    pub era: Option<Era>,
    /// The Module whose `.ready` label this would be as well: `x.version.ready` is that of a Module named `x.version`.
    pub also: Option<ObjectKey>,
}

impl Label {
    pub const ALL: [Self; 9] = [
        Self::Desired,
        Self::Loader,
        Self::Schedule,
        Self::Target,
        Self::DraTarget,
        Self::Ready,
        Self::VersionReady,
        Self::PluginReady,
        Self::DraReady,
    ];

    fn form(self, era: Era) -> Option<&'static Form> {
        WORDS.iter().find(|(label, eras, _)| *label == self && eras.contains(&era)).map(|(_, _, form)| form)
    }

    /// The key of this label for a Module; None where that generation has no such label.
    #[must_use]
    pub fn key(self, module: &ObjectKey, era: Era) -> Option<String> {
        let (namespace, name) = (&module.namespace, &module.name);
        Some(match self.form(era)? {
            Form::Before(text) => format!("{text}{namespace}.{name}"),
            Form::After(prefix, text) => format!("{prefix}{namespace}.{name}{text}"),
        })
    }

    /// All keys under which this label may be found, the newest generation's first.
    #[must_use]
    pub fn keys(self, module: &ObjectKey) -> Vec<String> {
        let (namespace, name) = (&module.namespace, &module.name);
        let forms = WORDS.iter().filter(|(label, _, _)| *label == self);
        forms
            .map(|(_, _, form)| match form {
                Form::Before(text) => format!("{text}{namespace}.{name}"),
                Form::After(prefix, text) => format!("{prefix}{namespace}.{name}{text}"),
            })
            .collect()
    }

    /// How long namespace and name may be together.
    #[must_use]
    pub fn limit(self, era: Era) -> Option<usize> {
        let word = match self.form(era)? {
            Form::Before(text) => text.split_once('/').map_or(0, |(_, word)| word.len()),
            Form::After(_, text) => text.len(),
        };
        // The dot between namespace and name.
        Some(MAX_NAME_PART - word - 1)
    }
}

/// Namespace and name of `<namespace>.<name>`; a namespace has no dots, a name may.
fn split(text: &str) -> Option<ObjectKey> {
    let (namespace, name) = text.split_once('.')?;
    (!namespace.is_empty() && !name.is_empty()).then(|| ObjectKey::new(namespace, name))
}

/// What the key says; None for keys that are not about one Module.
#[must_use]
pub fn parse(key: &str) -> Option<Parsed> {
    WORDS.iter().find_map(|(label, eras, form)| {
        let rest = match form {
            Form::Before(text) => key.strip_prefix(text)?,
            Form::After(prefix, text) => key.strip_prefix(prefix)?.strip_suffix(text)?,
        };
        let module = split(rest)?;
        let also =
            (*label == Label::VersionReady).then(|| ObjectKey::new(module.namespace.clone(), format!("{}.version", module.name)));
        let era = match eras {
            [] => Some(Era::Third),
            [era] => Some(*era),
            _ => None,
        };
        Some(Parsed { label: *label, module, era, also })
    })
}

/// As [`parse`], where a key can be read in two ways: by the Modules that exist, and if both do by the value (`.ready` is always empty).
#[must_use]
pub fn parse_among(key: &str, value: &str, exists: impl Fn(&ObjectKey) -> bool) -> Option<Parsed> {
    let parsed = parse(key)?;
    let Some(other) = parsed.also.clone() else { return Some(parsed) };
    let other_is_meant = match (exists(&parsed.module), exists(&other)) {
        (true, false) | (false, false) => false,
        (false, true) => true,
        (true, true) => value.is_empty(),
    };
    Some(if other_is_meant { Parsed { label: Label::Ready, module: other, era: None, also: None } } else { parsed })
}

/// The `.ready` and `.device-plugin-ready` labels of KMM 1.x without a namespace: they name a Module of any namespace.
#[must_use]
pub fn without_namespace(key: &str) -> Option<(Label, &str)> {
    let rest = key.strip_prefix(PREFIX)?;
    let (name, label) = match rest.strip_suffix(".device-plugin-ready") {
        Some(name) => (name, Label::PluginReady),
        None => (rest.strip_suffix(".ready")?, Label::Ready),
    };
    (!name.is_empty() && !name.contains('.')).then_some((label, name))
}

/// Which Module KMM itself takes a version label for: the **last two** segments of the key. Other than the one that is meant when the name
/// has dots, and then the label is never acted upon.
#[must_use]
pub fn as_kmm_reads(module: &ObjectKey) -> ObjectKey {
    let text = format!("{}.{}", module.namespace, module.name);
    let mut parts = text.rsplit('.');
    let name = parts.next().unwrap_or_default().to_owned();
    let namespace = parts.next().unwrap_or_default().to_owned();
    ObjectKey::new(namespace, name)
}

/// Whether KMM mixes up the labels of these two on one node: it groups them by `<namespace>-<name>`.
#[must_use]
pub fn mixed_up(one: &ObjectKey, other: &ObjectKey) -> bool {
    let (one, other) = (as_kmm_reads(one), as_kmm_reads(other));
    one != other && format!("{}-{}", one.namespace, one.name) == format!("{}-{}", other.namespace, other.name)
}

/// Whether the `.ready` label of one is the `.version.ready` label of the other.
#[must_use]
pub fn share_ready_label(one: &ObjectKey, other: &ObjectKey) -> bool {
    let shares = |one: &ObjectKey, two: &ObjectKey| {
        one.namespace == two.namespace && two.name.strip_suffix(".version").is_some_and(|name| name == &*one.name)
    };
    shares(one, other) || shares(other, one)
}

/// The name of the worker pod; two pairs of node and Module of one namespace may share one.
#[must_use]
pub fn worker_pod(node: &str, module: &str) -> String {
    format!("kmm-worker-{node}-{module}")
}
