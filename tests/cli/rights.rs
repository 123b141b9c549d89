//! The access table against the engine itself, on a simulated cluster that enforces the printed roles: nothing is refused, and no permission
//! of the table stays unused.

use std::{collections::BTreeSet, time::Duration};

use lockkeeper::{
    api::access::{self, Role},
    cli::manifests::{Manifests, RoleName, render},
    engine::{Engine, EngineOptions, picture::Mode},
    fleet::event::Kind,
    sim::{
        actors::KubeletOptions,
        apiserver::Identity,
        scenarios::{
            kernel_module::{self as scenario, NAME, NAMESPACE},
            objects,
        },
        world::{ENGINE, World, WorldOptions},
    },
};
use serde_json::Value;

/// A cluster that enforces roles, with the printed role of this name given to user `USER`.
const USER: &str = "somebody";

fn world(role: RoleName) -> World {
    let mut options =
        WorldOptions { kubelets: KubeletOptions::quick(), read_only: vec![USER.to_owned()], ..WorldOptions::new(1) };
    options.server.rbac = true;
    let world = World::start(&options, &scenario::cluster(3));
    let manifests = Manifests { role: vec![role], to_user: vec![USER.into()], ..Manifests::default() };
    let documents: Vec<Value> = serde_saphyr::from_multiple(&render(&manifests, None).unwrap()).unwrap();
    for document in documents.into_iter().filter(|document| document["kind"] != "Namespace") {
        world.api.install(document).unwrap();
    }
    world
}

/// Looks on, as this user.
async fn onlooker(world: &World) -> Engine {
    let client = world.api.client(&Identity::new(ENGINE).user(USER));
    let cluster = lockkeeper::cluster::Cluster::over(client, true, "simulated", "in this process").identified().await.unwrap();
    Engine::start(cluster, EngineOptions { mode: Mode::ReadOnly, identity: USER.into(), ..EngineOptions::default() })
}

/// Requests of the engine that the server refused for lack of a permission.
fn refused(world: &World) -> Vec<String> {
    let counts = world.api.log().counts();
    let forbidden = counts.iter().filter(|((client, ..), count)| client == ENGINE && count.refused.contains_key(&403));
    forbidden.map(|((_, verb, resource), _)| format!("{verb} {resource}")).collect()
}

/// Permissions of a role that the engine has made no use of: `verb resource.group/subresource`. To get one by its name is left out where
/// all of them are listed: it shows nothing more, and people who hold the role do it with kubectl.
fn unused(world: &World, role: Role) -> BTreeSet<String> {
    let counts = world.api.log().counts();
    let used: BTreeSet<String> =
        counts.keys().filter(|(client, ..)| client == ENGINE).map(|(_, verb, resource)| format!("{verb} {resource}")).collect();
    let mut unused = BTreeSet::new();
    for rule in access::rules(role) {
        for resource in rule.resources {
            let (plural, sub) =
                resource.split_once('/').map_or((*resource, String::new()), |(plural, sub)| (plural, format!("/{sub}")));
            let group = if rule.group.is_empty() { String::new() } else { format!(".{}", rule.group) };
            for verb in rule.verbs {
                let permission = format!("{verb} {plural}{group}{sub}");
                let listed = *verb == "get" && used.contains(&format!("list {plural}{group}{sub}"));
                if !listed && !used.contains(&permission) {
                    unused.insert(permission);
                }
            }
        }
    }
    unused
}

#[tokio::test(start_paused = true)]
async fn the_viewer_role_is_enough_to_look_on_and_all_of_it_is_needed() {
    let world = world(RoleName::Viewer);
    let hands = world.hands("operator");
    hands.create(&scenario::component()).await.unwrap();
    hands.create(&objects::handoff(NAMESPACE, NAME, "gpu-01", scenario::OLD, 1)).await.unwrap();
    let engine = onlooker(&world).await;
    assert!(engine.until(|picture| picture.fleet.synced).await.is_some());
    tokio::time::sleep(Duration::from_secs(600)).await;
    engine.stop().await;
    assert_eq!(refused(&world), Vec::<String>::new(), "looking on needs more than the table gives");
    // Watched only where a csiNodePlugin component is, or one that follows a Module of KMM.
    let asked_for = Kind::ALL.into_iter().filter(|kind| kind.is_asked_for());
    let asked_for: BTreeSet<String> =
        asked_for.flat_map(|kind| ["get", "list", "watch"].map(|verb| format!("{verb} {}", kind.resource()))).collect();
    assert_eq!(unused(&world, Role::Viewer), asked_for, "permissions that nothing uses, or reads of what no component needs");
}
