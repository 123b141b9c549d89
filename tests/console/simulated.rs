//! The console over the engine over the simulated cluster: a node is picked, planned, confirmed and handed over by keyboard.
//! The pictures in `screenshots/` are frames of this run: `SCREENSHOTS=write` renders them anew, `SCREENSHOTS=check` compares.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};

use lockkeeper::{
    api::Phase,
    console::{capture, effect::Effect, msg::Msg, write_log::Writes},
    engine::{
        Engine, EngineOptions,
        picture::{Mode, Picture},
    },
    sim::{
        people::operator,
        scenarios::kernel_module as scenario,
        world::{ENGINE, World, WorldOptions},
    },
};
use tokio::time::Instant;

use crate::{
    fixtures::Scene,
    user::{Look, User},
};

pub struct Session {
    pub world: Arc<World>,
    pub engine: Engine,
    pub user: User,
    started: Instant,
    read: u64,
}

const NODES: usize = 8;

/// A fleet that runs 1.0 and is to go to 2.0.
async fn session(size: (u16, u16)) -> Session {
    let world = Arc::new(World::start(&WorldOptions::new(7), &scenario::cluster(NODES)));
    let hands = world.hands("operator");
    let options = EngineOptions { mode: Mode::Engine, identity: format!("{ENGINE}#1"), ..EngineOptions::default() };
    let engine = Engine::start(world.cluster(ENGINE, false), options);
    hands.create(&scenario::component()).await.unwrap();
    let nodes = scenario::node_names(NODES);
    assert!(operator::all_ready(&hands, &nodes, scenario::OLD, Duration::from_secs(3600)).await);
    operator::apply(&hands, &scenario::workloads(NODES, 2)).await.unwrap();
    operator::settled(&hands, Duration::from_secs(300)).await;
    operator::release(&hands).await.unwrap();
    tokio::time::sleep(Duration::from_secs(30)).await;
    Session::of(world, engine, size)
}

impl Session {
    /// What the engine shows now, before a person.
    pub fn of(world: Arc<World>, engine: Engine, size: (u16, u16)) -> Self {
        let picture = engine.pictures().borrow().clone();
        let user = User::with(Scene { picture }, Look { demo: true, ..Look::default() }).sized(size.0, size.1);
        Session { world, engine, user, started: Instant::now(), read: 0 }
    }

    /// Lets simulated time pass until a picture is as wanted.
    pub async fn until(&mut self, what: &str, wanted: impl Fn(&Picture) -> bool) {
        let mut pictures = self.engine.pictures();
        for _ in 0..6000 {
            tokio::time::sleep(Duration::from_millis(200)).await;
            self.look(&pictures.borrow_and_update().clone());
            if wanted(&self.user.model.picture) {
                return;
            }
        }
        panic!("never: {what}\n{}", self.user.text());
    }

    fn look(&mut self, picture: &Picture) {
        self.user.model.clock = self.started.elapsed();
        self.user.send(Msg::Picture(Box::new(picture.clone())));
        let (entries, total) = self.engine.cluster().log().since(self.read);
        self.read = total;
        if !entries.is_empty() {
            self.user.send(Msg::Writes(Writes { entries, lost: 0 }));
        }
    }

    /// Keys, and what the engine answers to what they ask.
    pub async fn press(&mut self, keys: &str) {
        self.user.press(keys);
        for effect in std::mem::take(&mut self.user.effects) {
            if let Effect::Submit(id, intent) = effect {
                let outcome = self.engine.ask(*intent).await;
                self.user.send(Msg::Outcome(id, outcome));
            }
        }
    }

    pub fn shoot(&mut self, name: &str, pictures: &mut BTreeMap<String, String>) {
        pictures.insert(format!("{name}.svg"), capture::svg(&self.user.frame()));
        println!("{name}\n{}", self.user.text());
    }
}

fn phase_of(picture: &Picture, node: &str) -> Option<Phase> {
    let node = picture.fleet.node(&node.into())?;
    let handoff = node.components.get(&scenario::key())?.handoff.as_ref()?;
    Some(handoff.status.phase)
}

async fn play() -> BTreeMap<String, String> {
    let mut shots = BTreeMap::new();
    let mut it = session((120, 34)).await;
    it.user.expect_text("Choose a node with j and k");
    let nodes = scenario::node_names(NODES);
    // Three nodes, in an order of our own.
    for node in [&nodes[2], &nodes[0], &nodes[4]] {
        it.user.go_to(node).press("space");
    }
    it.press("U").await;
    it.user.expect_overlay("plan").expect_text("3 nodes");
    it.shoot("plan", &mut shots);
    it.press("enter").await;
    it.user.type_text(&nodes[2]).expect_overlay("confirm");
    it.shoot("confirm", &mut shots);
    it.press("enter").await;
    it.user.expect_overlay("none").expect_no_text("refused");
    let first = nodes[2].clone();
    it.until("the first one drains", |picture| phase_of(picture, &first) == Some(Phase::Draining)).await;
    it.user.go_to(&nodes[2]);
    it.until("it loads", |picture| phase_of(picture, &first) == Some(Phase::Loading)).await;
    it.press("enter").await;
    it.shoot("node", &mut shots);
    it.press("3").await;
    it.user.expect_text("kubectl");
    it.shoot("log", &mut shots);
    it.press("1").await;
    let second = nodes[0].clone();
    it.until("the second one drains", |picture| phase_of(picture, &second) == Some(Phase::Draining)).await;
    it.user.go_to(&second);
    it.shoot("fleet", &mut shots);
    let order: Vec<String> = [2, 0, 4].iter().map(|at| nodes[*at].clone()).collect();
    let all = order.clone();
    it.until("all three are done", move |picture| all.iter().all(|node| phase_of(picture, node) == Some(Phase::Done))).await;
    it.user.expect_text("3/8 on 2.0");
    let fleet = &it.user.model.picture.fleet;
    for watch in fleet.health.iter() {
        let silent = watch.last_event.map(|at| fleet.now.duration_since(at).as_secs());
        assert!(silent.is_some_and(|seconds| seconds < 120), "{}: nothing heard for {silent:?} s", watch.resource);
    }
    let ended = |node: &String| {
        let picture = &it.user.model.picture;
        let status =
            picture.fleet.node(&node.as_str().into()).and_then(|node| node.components.get(&scenario::key())?.handoff.clone());
        status.and_then(|handoff| handoff.status.phase_since.clone()).unwrap()
    };
    assert!(ended(&order[0]) < ended(&order[1]) && ended(&order[1]) < ended(&order[2]), "in the order of the marks");
    let report = it.world.report();
    assert_eq!((report.disruptions, report.violations.len()), (0, 0), "{:?}", report.violations);
    it.engine.stop().await;
    shots
}

#[test]
fn nodes_are_handed_over_by_keyboard() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    keep(runtime.block_on(play()));
}

/// Writes or compares pictures, as `SCREENSHOTS` says.
pub fn keep(shots: BTreeMap<String, String>) {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("screenshots");
    let mode = std::env::var("SCREENSHOTS").unwrap_or_default();
    for (name, svg) in shots {
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n") && svg.len() < 200_000, "{name}");
        let file = folder.join(&name);
        match mode.as_str() {
            "write" => {
                std::fs::create_dir_all(&folder).unwrap();
                std::fs::write(&file, svg).unwrap();
            }
            "check" => {
                let stored = std::fs::read_to_string(&file).unwrap_or_default();
                assert!(stored == svg, "{} is not what the demo shows now: SCREENSHOTS=write renders it anew", file.display());
            }
            _ => assert!(file.exists(), "{} is missing: SCREENSHOTS=write renders it", file.display()),
        }
    }
}
