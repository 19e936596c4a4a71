//! A machine as a picture: states in layers by their distance from birth, one arrow per way.

use instar_core::machine::{Phase, Table};
use std::collections::BTreeSet;
use std::fmt::Write;

const BOX: (i32, i32) = (150, 36);
const STEP: (i32, i32) = (220, 92);
const EDGE: i32 = 24;

pub(crate) fn picture(table: &Table) -> String {
    let layers = layers(table);
    let places = places(&layers, table.states.len());
    let width = layers.len() as i32 * STEP.0 + EDGE;
    let height = layers.iter().map(Vec::len).max().unwrap_or(1) as i32 * STEP.1 + EDGE;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" role=\"img\" \
         font-family=\"system-ui, sans-serif\" font-size=\"13\"><title>{name}</title><desc>{doc}</desc>\
         <defs><marker id=\"a\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" markerWidth=\"7\" markerHeight=\"7\" \
         orient=\"auto-start-reverse\"><path d=\"M0 0 8 4 0 8z\" fill=\"#667\"/></marker></defs>",
        name = escape(table.name),
        doc = escape(table.doc),
    );
    for (from, to, label) in ways(table) {
        arrow(&mut svg, places[from], places[to], &label);
    }
    for (state, (x, y)) in table.states.iter().zip(&places) {
        let (fill, stroke) = match state.phase {
            Phase::Live => ("#eef5ff", "#2563eb"),
            Phase::Rest => ("#fff7e6", "#b45309"),
            Phase::Terminal => ("#f1f1f4", "#555"),
        };
        // Writing to a String cannot fail.
        let _ = write!(
            svg,
            "<g><title>{}</title><rect x=\"{x}\" y=\"{y}\" width=\"{}\" height=\"{}\" rx=\"8\" fill=\"{fill}\" \
             stroke=\"{stroke}\"/><text x=\"{}\" y=\"{}\" text-anchor=\"middle\" fill=\"#111\">{}</text></g>",
            escape(state.doc),
            BOX.0,
            BOX.1,
            x + BOX.0 / 2,
            y + BOX.1 / 2 + 5,
            escape(state.token),
        );
    }
    svg + "</svg>"
}

/// States by the number of transitions that it takes to reach them.
fn layers(table: &Table) -> Vec<Vec<usize>> {
    let births = table.births().filter_map(|row| row.to).map(usize::from);
    let mut layers: Vec<Vec<usize>> = vec![births.collect::<BTreeSet<_>>().into_iter().collect()];
    let mut seen: BTreeSet<usize> = layers[0].iter().copied().collect();
    while let Some(last) = layers.last().filter(|last| !last.is_empty()) {
        let next: BTreeSet<usize> = ways(table)
            .into_iter()
            .filter(|(from, to, _)| last.contains(from) && !seen.contains(to))
            .map(|(_, to, _)| to)
            .collect();
        seen.extend(&next);
        layers.push(next.into_iter().collect());
    }
    layers.pop();
    layers
}

fn places(layers: &[Vec<usize>], states: usize) -> Vec<(i32, i32)> {
    let mut places = vec![(EDGE, EDGE); states];
    let tallest = layers.iter().map(Vec::len).max().unwrap_or(1) as i32;
    for (column, layer) in (0..).zip(layers) {
        let above = (tallest - layer.len() as i32) * STEP.1 / 2;
        for (row, state) in (0..).zip(layer) {
            places[*state] = (EDGE + column * STEP.0, EDGE + above + row * STEP.1);
        }
    }
    places
}

/// Each pair of states that some row leads between, with the events that do it.
fn ways(table: &Table) -> Vec<(usize, usize, String)> {
    let mut ways: Vec<(usize, usize, Vec<&str>)> = Vec::new();
    for row in table.rows {
        let (Some(to), event) = (row.to, table.events[row.event as usize].token) else { continue };
        for from in row.from {
            let (from, to) = (usize::from(*from), usize::from(to));
            match ways.iter_mut().find(|(f, t, _)| (*f, *t) == (from, to)) {
                Some((_, _, events)) if events.contains(&event) => {}
                Some((_, _, events)) => events.push(event),
                None => ways.push((from, to, vec![event])),
            }
        }
    }
    ways.into_iter().map(|(from, to, events)| (from, to, events.join(", "))).collect()
}

/// A curve from box to box; the events show when it is pointed at.
fn arrow(svg: &mut String, from: (i32, i32), to: (i32, i32), label: &str) {
    let middle = |(x, y): (i32, i32), side: i32| (x + side, y + BOX.1 / 2);
    let forward = to.0 > from.0;
    let (start, end) = match forward {
        true => (middle(from, BOX.0), middle(to, 0)),
        false => ((from.0 + BOX.0 / 2, from.1 + BOX.1), (to.0 + BOX.0 / 2 + 12, to.1 + BOX.1)),
    };
    let (bend_a, bend_b) = match forward {
        true => ((start.0 + 40, start.1), (end.0 - 40, end.1)),
        false => ((start.0, start.1 + 44), (end.0, end.1 + 44)),
    };
    let _ = write!(
        svg,
        "<path d=\"M{} {} C{} {} {} {} {} {}\" fill=\"none\" stroke=\"#667\" marker-end=\"url(#a)\"><title>{}</title></path>",
        start.0,
        start.1,
        bend_a.0,
        bend_a.1,
        bend_b.0,
        bend_b.1,
        end.0,
        end.1,
        escape(label),
    );
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
