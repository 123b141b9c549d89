//! What `status` says of Kernel Module Management: each Module on each node it concerns, in KMM's own words, with what is wrong and its repair.

use serde::Serialize;

use crate::{
    cli::text::{Table, plain},
    cluster::kmm::Read,
    kmm::{problem::Place, problem::Weight, state::Seen},
};

/// Field names are stable: scripts read them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    pub modules: Vec<Module>,
    pub nodes: Vec<Node>,
    /// What is wrong, each once for all the nodes that have it.
    pub problems: Vec<Problem>,
    pub notes: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Module {
    /// `namespace/name`.
    pub module: String,
    /// Absent: no ordered upgrade.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Nodes that it concerns, and those that are proven to have the Module's version (any, without version) loaded.
    pub nodes: usize,
    pub current: usize,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Node {
    pub node: String,
    pub module: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wanted: Option<String>,
    /// Proven to be in the kernel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loaded: Option<String>,
    pub state: String,
    pub sentence: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Problem {
    pub kind: String,
    pub module: String,
    pub nodes: Vec<String>,
    /// Will not go on by itself; otherwise it does harm when something else happens.
    pub broken: bool,
    pub text: String,
    /// Commands for the first of the nodes.
    pub repair: Vec<String>,
}

/// Of all Modules on all nodes.
#[must_use]
pub fn report(read: &Read) -> Report {
    let kmm = &read.kmm;
    let mut modules: Vec<Module> = kmm
        .modules
        .values()
        .map(|module| Module {
            module: module.key.to_string(),
            version: module.version.as_deref().map(str::to_owned),
            image: module.image.as_deref().map(str::to_owned),
            nodes: 0,
            current: 0,
        })
        .collect();
    let (mut nodes, mut problems) = (Vec::new(), Vec::<Problem>::new());
    for node in &read.nodes {
        for key in kmm.concerning(node) {
            // One look only: what takes watching (repeated creation, how long KMM has waited) is not known here.
            let answer = kmm.on(node, &key, Seen::default());
            let spec = kmm.modules.get(&key);
            let name = key.to_string();
            if let Some(module) = modules.iter_mut().find(|module| module.module == name) {
                module.nodes += 1;
                let aim = spec.and_then(|spec| spec.version.as_ref());
                module.current += usize::from(answer.loaded.as_ref().is_some_and(|loaded| aim.is_none_or(|aim| aim == loaded)));
            }
            let place = Place { node: node.name.as_str(), module: &key, spec };
            for problem in &answer.problems {
                let (kind, text) = (problem.kind(), problem.text(&place));
                match problems.iter_mut().find(|known| known.kind == kind && known.module == name && known.text == text) {
                    Some(known) => known.nodes.push(node.name.to_string()),
                    None => problems.push(Problem {
                        kind: kind.to_owned(),
                        module: name.clone(),
                        nodes: vec![node.name.to_string()],
                        broken: problem.weight() == Weight::Broken,
                        text,
                        repair: problem.repair(&place),
                    }),
                }
            }
            nodes.push(Node {
                node: node.name.to_string(),
                module: name,
                wanted: answer.wanted.as_deref().map(str::to_owned),
                loaded: answer.loaded.as_deref().map(str::to_owned),
                state: answer.state.word().to_owned(),
                sentence: answer.sentence,
            });
        }
    }
    problems.sort_by_key(|problem| !problem.broken);
    Report { modules, nodes, problems, notes: read.undecodable.iter().map(ToString::to_string).collect() }
}

/// For people.
#[must_use]
pub fn table(report: &Report) -> String {
    let dash = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
    let mut modules = Table::new(&["KMM MODULE", "VERSION", "IMAGE", "NODES", "CURRENT"]);
    for it in &report.modules {
        modules.row([it.module.clone(), dash(&it.version), dash(&it.image), it.nodes.to_string(), it.current.to_string()]);
    }
    let mut text = if modules.is_empty() { "KMM is there, without Modules.\n".to_owned() } else { modules.to_string() };
    if !report.nodes.is_empty() {
        let mut nodes = Table::new(&["NODE", "KMM MODULE", "WANTED", "LOADED", "STATE", "MESSAGE"]);
        for it in &report.nodes {
            nodes.row([
                it.node.clone(),
                it.module.clone(),
                dash(&it.wanted),
                dash(&it.loaded),
                it.state.clone(),
                it.sentence.clone(),
            ]);
        }
        text.push_str(&format!("\n{nodes}"));
    }
    for problem in &report.problems {
        let nodes = match problem.nodes.as_slice() {
            [a, b, c, rest @ ..] if !rest.is_empty() => format!("{a}, {b}, {c} and {} more", rest.len()),
            nodes => nodes.join(", "),
        };
        let word = if problem.broken { "problem" } else { "trap" };
        text.push_str(&format!(
            "\n{word} {} of {} on {}: {}\n",
            problem.kind,
            plain(&problem.module),
            plain(&nodes),
            plain(&problem.text)
        ));
        for line in &problem.repair {
            text.push_str(&format!("    {}\n", plain(line)));
        }
    }
    for note in &report.notes {
        text.push_str(&format!("note: {}\n", plain(note)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kmm::tests::{story::Start, world::World};

    fn read(world: &World) -> Read {
        let nodes = ["node-a", "node-b"].into_iter().filter_map(|name| world.node_record(name)).collect();
        Read { kmm: world.kmm(), nodes, undecodable: Vec::new() }
    }

    #[test]
    fn each_module_is_shown_on_each_node_with_what_is_wrong_and_how_it_is_repaired() {
        let mut world =
            World::new(&Start { module: Some("2.0".into()), nodes: vec!["1.0".into(), "1.0".into()], ..Start::default() });
        world.tolerate();
        world.apply(0, "node node-a schedule=2.0 want=1.0");
        let text = table(&report(&read(&world)));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0].split_whitespace().collect::<Vec<_>>(), ["KMM", "MODULE", "VERSION", "IMAGE", "NODES", "CURRENT"]);
        assert_eq!(
            lines[1].split_whitespace().collect::<Vec<_>>(),
            ["drv/mod", "2.0", "mod:2.0-${KERNEL_FULL_VERSION}", "2", "0"]
        );
        assert!(lines[4].starts_with("node-a") && lines[4].contains("stuck"), "{text}");
        assert!(lines[5].ends_with("1.0 is loaded"), "{text}");
        let at = lines
            .iter()
            .position(|line| line.starts_with("problem StuckLabels of drv/mod on node-a: KMM has no rule"))
            .expect("the problem");
        assert_eq!(lines[at + 2], "    kubectl label node node-a beta.kmm.node.kubernetes.io/version-schedule-pod.drv.mod-");
    }

    #[test]
    fn what_a_terminal_would_obey_is_shown() {
        let mut world =
            World::new(&Start { module: Some("1.0".into()), nodes: vec!["1.0".into(), "1.0".into()], ..Start::default() });
        world.apply(0, "node node-a want=\u{1b}[2J worker- schedule-");
        assert!(!table(&report(&read(&world))).contains('\u{1b}'));
    }
}
