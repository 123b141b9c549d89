//! What `/metrics` says. Gauges are computed from the latest picture when they are asked for; only what is gone once it has happened
//! is counted as it happens (`recorded`).

mod gauges;
mod recorded;
pub mod table;
#[cfg(test)]
pub(super) mod tests;

use std::fmt;

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, NoLabelSet, text},
    registry::Registry,
};
use tokio::sync::watch;

pub(super) use self::gauges::{component_of, state_word};
use self::table::{Kind, Metric};
pub use self::{
    gauges::{Samples, samples},
    recorded::{Recorded, outcome},
};
use super::{picture::Picture, probes::Probes};
use crate::{
    cluster::{Cluster, watch::Board},
    fleet::view::WatchHealth,
};

/// Where the numbers come from.
#[derive(Debug, Clone)]
pub struct Sources {
    pub cluster: Cluster,
    pub pictures: watch::Receiver<Picture>,
    /// How the watches fare at this moment; a picture is as old as the last change. None: the picture's word is taken.
    pub board: Option<Board>,
    pub probes: Probes,
    /// How many nodes may be admitted at once over all components.
    pub cluster_max_unavailable: u32,
}

impl Sources {
    /// The watches as they are now, with what the stores know of their objects.
    pub fn watches(&self, picture: &Picture) -> Vec<WatchHealth> {
        let Some(board) = &self.board else { return picture.fleet.health.to_vec() };
        let mut now = board.health();
        for watch in &mut now {
            if let Some(known) = picture.fleet.health.iter().find(|known| known.resource == watch.resource) {
                watch.objects = known.objects;
                watch.undecodable = known.undecodable.clone();
            }
        }
        now
    }

    fn samples(&self) -> Samples {
        let picture = self.pictures.borrow().clone();
        let now = self.cluster.clock().now();
        let mut out = samples(&picture, now, self.cluster_max_unavailable);
        gauges::watches(&mut out, &self.watches(&picture), now);
        for (series, tally) in self.cluster.counters().read() {
            let labels = [series.verb.as_str(), &series.resource, &series.code.to_string()];
            out.set(table::REQUESTS, labels, tally.count as f64);
            out.set(table::REQUEST_SECONDS, labels, tally.time.as_secs_f64());
        }
        let heartbeat = &self.probes.heartbeat;
        out.set(table::TURNS, [], heartbeat.turns() as f64);
        out.set(table::TURN_SECONDS, [], heartbeat.busy().as_secs_f64());
        out.set(table::HEARTBEAT_AGE, [], heartbeat.age().as_secs_f64());
        out.set(table::EVENTS_LOST, [], self.probes.events_lost() as f64);
        let recorded = self.probes.recorded.lock();
        for ([op, outcome], count) in &recorded.actions {
            out.set(table::ACTIONS, [op, outcome], *count as f64);
        }
        for ([outcome], count) in &recorded.evictions {
            out.set(table::EVICTIONS, [outcome], *count as f64);
        }
        for ([component, phase], count) in &recorded.ended {
            out.set(table::ENDED, [component, phase], *count as f64);
        }
        out
    }
}

/// The registry; cheap to ask, nothing runs in between.
#[derive(Debug)]
pub struct Exposition(Registry);

impl Exposition {
    pub fn new(sources: Sources) -> Self {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Scrape(sources)));
        Self(registry)
    }

    pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

    /// The text of OpenMetrics 1.0.
    ///
    /// # Errors
    /// A metric cannot be written as text, which no input brings about.
    pub fn text(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        text::encode(&mut text, &self.0)?;
        Ok(text)
    }
}

#[derive(Debug)]
struct Scrape(Sources);

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        let samples = self.0.samples();
        for metric in table::ALL {
            let mut encoder = encoder.encode_descriptor(metric.name, metric.help, None, metric.type_())?;
            if metric.kind == Kind::Histogram {
                for (labels, histogram) in &self.0.probes.recorded.lock().phases {
                    histogram.encode(encoder.encode_family(&pairs(metric, labels))?)?;
                }
                continue;
            }
            for (labels, value) in samples.of(metric) {
                let pairs = pairs(metric, labels);
                write(metric, value, encoder.encode_family(&pairs)?)?;
            }
        }
        Ok(())
    }
}

fn pairs<'a>(metric: &Metric, labels: &'a [String]) -> Vec<(&'static str, &'a str)> {
    metric.labels.iter().copied().zip(labels.iter().map(String::as_str)).collect()
}

/// One sample. Whole numbers are told as such.
fn write(metric: &Metric, value: f64, mut encoder: MetricEncoder) -> fmt::Result {
    let whole = value.fract() == 0.0 && value.abs() < 1e15;
    match metric.kind {
        Kind::Counter if whole => encoder.encode_counter::<NoLabelSet, u64, f64>(&(value as u64), None),
        Kind::Counter => encoder.encode_counter::<NoLabelSet, f64, f64>(&value, None),
        _ if whole => encoder.encode_gauge(&(value as i64)),
        _ => encoder.encode_gauge(&value),
    }
}
