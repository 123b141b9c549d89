//! What `plan` says: each node's pods, budgets and steps, and every reason to refuse at once.

use serde::Serialize;

use crate::{
    cli::text::{Table, plain},
    console::plan::{NodePlan, Plan, change},
    handoff::plan::Write,
};

/// Field names are stable: scripts read them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    pub cluster: String,
    pub component: String,
    pub to: String,
    pub refused: bool,
    pub refusals: Vec<String>,
    pub warnings: Vec<String>,
    pub nodes: Vec<Node>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Node {
    pub node: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    pub refusals: Vec<String>,
    pub warnings: Vec<String>,
    pub pods: Vec<Pod>,
    /// PodDisruptionBudgets of these pods, with their arithmetic.
    pub budgets: Vec<String>,
    pub steps: Vec<String>,
    /// What changes in these steps, in order: lockkeeper's writes, and what others are awaited to do at them.
    pub changes: Vec<Write>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Pod {
    /// `namespace/name`.
    pub pod: String,
    pub uid: String,
    pub why: String,
    pub what: String,
}

pub fn report(cluster: &str, component: &str, to: &str, plan: &Plan) -> Report {
    Report {
        cluster: cluster.to_owned(),
        component: component.to_owned(),
        to: to.to_owned(),
        refused: plan.is_refused(),
        refusals: plan.refusals.clone(),
        warnings: plan.warnings.clone(),
        nodes: plan.nodes.iter().map(node).collect(),
    }
}

fn node(plan: &NodePlan) -> Node {
    Node {
        node: plan.node.to_string(),
        from: plan.from.as_ref().map(ToString::to_string),
        refusals: plan.refusals.clone(),
        warnings: plan.warnings.clone(),
        pods: plan
            .pods
            .iter()
            .map(|pod| Pod { pod: pod.name.clone(), uid: pod.uid.to_string(), why: pod.why.clone(), what: pod.what.clone() })
            .collect(),
        budgets: plan.budgets.clone(),
        steps: plan.steps.iter().map(ToString::to_string).collect(),
        changes: plan.steps.iter().flat_map(|step| step.changes.iter().cloned()).collect(),
    }
}

pub fn text(report: &Report) -> String {
    let mut text = format!("{} to {} on {}\n", plain(&report.component), plain(&report.to), plain(&report.cluster));
    listed(&mut text, "Refused", &report.refusals);
    listed(&mut text, "Warning", &report.warnings);
    for node in &report.nodes {
        text.push_str(&format!("\nNode {}, from {}\n", plain(&node.node), plain(node.from.as_deref().unwrap_or("nothing"))));
        let refused = if report.nodes.len() > 1 { format!("  Refused on {}", plain(&node.node)) } else { "  Refused".to_owned() };
        listed(&mut text, &refused, &node.refusals);
        listed(&mut text, "  Warning", &node.warnings);
        if node.pods.is_empty() {
            text.push_str("  No pod has to leave.\n");
        } else {
            let mut pods = Table::new(&["POD", "WHY", "WHAT HAPPENS"]);
            for pod in &node.pods {
                pods.row([&pod.pod, &pod.why, &pod.what]);
            }
            indented(&mut text, &pods.to_string());
        }
        listed(&mut text, "  Budget", &node.budgets);
        for (at, step) in node.steps.iter().enumerate() {
            text.push_str(&format!("  {}. {}\n", at + 1, plain(step)));
            let of_step = |write: &&Write| step.strip_prefix(write.phase.as_str()).is_some_and(|rest| rest.starts_with(':'));
            for write in node.changes.iter().filter(of_step) {
                text.push_str(&format!("     - {}\n", plain(&change(write))));
            }
        }
    }
    text.push_str(match report.refused {
        true => "\nA handoff would be refused. Nothing was written.\n",
        false => "\nNothing was written.\n",
    });
    text
}

/// Every reason to refuse, one a line, for standard error.
pub fn refusals(report: &Report) -> String {
    let nodes = report.nodes.iter().flat_map(|node| {
        let name = format!("Node {}", node.node);
        node.refusals.iter().map(move |why| if why.starts_with(&name) { why.clone() } else { format!("{name}: {why}") })
    });
    let all: Vec<String> = report.refusals.iter().cloned().chain(nodes).map(|why| format!("\n  {}", plain(&why))).collect();
    format!("preflight refuses {} to {} on {}; nothing was written:{}", report.component, report.to, report.cluster, all.concat())
}

fn listed(text: &mut String, head: &str, sentences: &[String]) {
    for sentence in sentences {
        text.push_str(&format!("{head}: {}\n", plain(sentence)));
    }
}

fn indented(text: &mut String, lines: &str) {
    for line in lines.lines() {
        text.push_str(&format!("  {line}\n"));
    }
}
