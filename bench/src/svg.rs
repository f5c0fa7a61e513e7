//! Draws line charts and bar charts as SVG.
//!
//! The background is white and the fonts are generic, so a picture looks the same on a light and on a dark page.

use std::fmt::Write as _;

use crate::report::median;

const PANEL_WIDTH: f64 = 380.0;
const PLOT_LEFT: f64 = 62.0;
const PLOT_RIGHT: f64 = 20.0;
const LEGEND_HEIGHT: f64 = 26.0;
const INK: &str = "#222";
const GRID: &str = "#ddd";
/// Colours that people with any kind of colour vision can tell apart (Okabe and Ito).
const COLORS: [&str; 6] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"];

fn color(index: usize) -> &'static str {
    COLORS[index % COLORS.len()]
}

/// A measured value with its spread.
#[derive(Clone, Copy)]
pub(crate) struct Point {
    pub(crate) x: f64,
    pub(crate) y: f64,
    pub(crate) least: f64,
    pub(crate) greatest: f64,
}

/// One line of a chart. The legend shows the names if a panel has several lines.
pub(crate) struct Line {
    pub(crate) name: String,
    pub(crate) points: Vec<Point>,
}

/// One chart with logarithmic axes.
pub(crate) struct LinePanel {
    pub(crate) title: String,
    pub(crate) x_label: String,
    pub(crate) lines: Vec<Line>,
}

/// Draws charts side by side. All values must be positive.
pub(crate) fn line_charts(panels: &[LinePanel]) -> String {
    const HEIGHT: f64 = 270.0;
    let names: Vec<&str> = panels.first().map_or_else(Vec::new, |panel| {
        if panel.lines.len() < 2 {
            return Vec::new();
        }
        panel.lines.iter().map(|line| line.name.as_str()).collect()
    });
    let top = if names.is_empty() { 0.0 } else { LEGEND_HEIGHT };
    let mut svg = Svg::new(PANEL_WIDTH * panels.len() as f64, HEIGHT + top);
    svg.legend(&names);
    for (index, panel) in panels.iter().enumerate() {
        line_panel(&mut svg, panel, PANEL_WIDTH * index as f64, top, HEIGHT);
    }
    svg.finish()
}

fn line_panel(svg: &mut Svg, panel: &LinePanel, left: f64, top: f64, height: f64) {
    let points = || panel.lines.iter().flat_map(|line| &line.points);
    let x_axis = Axis::around(points().map(|point| point.x), 1.0);
    // At least one decade, so that noise does not look like a slope.
    let y_axis = Axis::around(points().flat_map(|point| [point.least, point.greatest]), 10.0);
    let (x_from, x_to) = (left + PLOT_LEFT, left + PANEL_WIDTH - PLOT_RIGHT);
    let (y_from, y_to) = (top + height - 44.0, top + 30.0);
    let x = |value: f64| x_from + x_axis.share(value) * (x_to - x_from);
    let y = |value: f64| y_from + y_axis.share(value) * (y_to - y_from);
    svg.text(x_from, top + 18.0, "start", 13, true, &panel.title);
    for tick in y_axis.ticks() {
        svg.line(x_from, y(tick), x_to, y(tick), GRID, 1.0);
        svg.text(x_from - 6.0, y(tick) + 4.0, "end", 11, false, &short(tick));
    }
    for tick in x_axis.ticks() {
        svg.line(x(tick), y_from, x(tick), y_to, GRID, 1.0);
        svg.text(x(tick), y_from + 15.0, "middle", 11, false, &short(tick));
    }
    svg.line(x_from, y_from, x_to, y_from, INK, 1.0);
    svg.text(f64::midpoint(x_from, x_to), y_from + 34.0, "middle", 11, false, &panel.x_label);
    for (index, line) in panel.lines.iter().enumerate() {
        let path: Vec<String> =
            line.points.iter().map(|point| format!("{:.1},{:.1}", x(point.x), y(point.y))).collect();
        svg.polyline(&path.join(" "), color(index));
        for point in &line.points {
            svg.line(x(point.x), y(point.least), x(point.x), y(point.greatest), color(index), 1.5);
            svg.circle(x(point.x), y(point.y), color(index));
        }
    }
}

/// The bars of one workload, one for each series. A series that was not measured has `None`.
pub(crate) struct BarGroup {
    pub(crate) name: String,
    pub(crate) values: Vec<Option<f64>>,
}

/// One chart with horizontal bars from zero, each with its value beside it. Bars that are much longer than the others are cut.
pub(crate) struct BarPanel {
    pub(crate) title: String,
    pub(crate) groups: Vec<BarGroup>,
}

/// Draws charts in two columns. `series` has the name of each bar of a group.
pub(crate) fn bar_charts(series: &[&str], panels: &[BarPanel]) -> String {
    const COLUMNS: usize = 2;
    let rows: Vec<&[BarPanel]> = panels.chunks(COLUMNS).collect();
    let heights: Vec<f64> = rows.iter().map(|row| row.iter().map(bar_height).fold(0.0, f64::max)).collect();
    let width = PANEL_WIDTH * COLUMNS.min(panels.len()) as f64;
    let mut svg = Svg::new(width, LEGEND_HEIGHT + heights.iter().sum::<f64>());
    svg.legend(series);
    let mut top = LEGEND_HEIGHT;
    for (row, height) in rows.into_iter().zip(heights) {
        for (column, panel) in row.iter().enumerate() {
            bar_panel(&mut svg, panel, PANEL_WIDTH * column as f64 + 14.0, top);
        }
        top += height;
    }
    svg.finish()
}

const BAR_HEIGHT: f64 = 14.0;
const GROUP_HEAD: f64 = 20.0;
const PANEL_HEAD: f64 = 26.0;
const PANEL_FOOT: f64 = 16.0;

fn bar_height(panel: &BarPanel) -> f64 {
    let groups = panel.groups.iter().map(|group| GROUP_HEAD + BAR_HEIGHT * group.values.len() as f64);
    PANEL_HEAD + groups.sum::<f64>() + PANEL_FOOT
}

fn bar_panel(svg: &mut Svg, panel: &BarPanel, left: f64, top: f64) {
    /// The room for the value behind the longest bar.
    const VALUE_WIDTH: f64 = 74.0;
    const CUT_WIDTH: f64 = 5.0;
    let longest = longest(panel);
    let width_max = PANEL_WIDTH - 28.0 - VALUE_WIDTH;
    svg.text(left, top + 18.0, "start", 13, true, &panel.title);
    let mut at = top + PANEL_HEAD;
    for group in &panel.groups {
        svg.text(left, at + 14.0, "start", 11, false, &group.name);
        at += GROUP_HEAD;
        for (index, value) in group.values.iter().enumerate() {
            let share = value.map_or(0.0, |value| value / longest);
            let width = share.min(1.0) * width_max;
            svg.rect(left, at + 1.0, width, BAR_HEIGHT - 2.0, color(index));
            if share > 1.0 {
                svg.rect(left + width * 0.9, at, CUT_WIDTH, BAR_HEIGHT, "#fff");
            }
            let label = value.map_or_else(|| "not measured".to_owned(), short);
            svg.text(left + width + 4.0, at + 11.0, "start", 11, false, &label);
            at += BAR_HEIGHT;
        }
    }
}

/// Returns the value of the longest bar that is drawn in full: one extreme value would make all others invisible.
fn longest(panel: &BarPanel) -> f64 {
    const TIMES_MEDIAN: f64 = 6.0;
    let values: Vec<f64> =
        panel.groups.iter().flat_map(|group| group.values.iter().copied().flatten()).collect();
    let greatest = values.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
    if values.is_empty() { greatest } else { greatest.min(median(&values) * TIMES_MEDIAN) }
}

/// A logarithmic axis.
struct Axis {
    from: f64,
    to: f64,
}

impl Axis {
    /// Returns an axis with all values, and a ratio between its ends of at least `ratio_min`.
    fn around(values: impl Iterator<Item = f64> + Clone, ratio_min: f64) -> Axis {
        let least = values.clone().filter(|value| *value > 0.0).fold(f64::INFINITY, f64::min);
        let greatest = values.fold(0.0, f64::max);
        if !least.is_finite() || greatest < least {
            return Axis { from: 1.0, to: 10.0 };
        }
        let more = (ratio_min / (greatest / least)).max(1.0).sqrt();
        let (from, to) = (least / more, (greatest * more).max(least * 1.001));
        if ratio_min <= 1.0 { Axis { from, to } } else { Axis { from: step_below(from), to: step_above(to) } }
    }

    /// Returns the place of a value between the ends, from 0 to 1.
    fn share(&self, value: f64) -> f64 {
        ((value.max(f64::MIN_POSITIVE) / self.from).ln() / (self.to / self.from).ln()).clamp(0.0, 1.0)
    }

    fn ticks(&self) -> Vec<f64> {
        let fine = self.to / self.from < 200.0;
        let (first, last) = (exponent(self.from), exponent(self.to) + 1);
        let steps: &[f64] = if fine { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let all = (first..=last).flat_map(|power| steps.iter().map(move |step| step * 10_f64.powi(power)));
        all.filter(|tick| *tick >= self.from * 0.999 && *tick <= self.to * 1.001).collect()
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the exponent of a finite number")]
fn exponent(value: f64) -> i32 {
    value.log10().floor() as i32
}

/// Returns the largest of 1, 2 and 5 times a power of ten that is not above the value.
fn step_below(value: f64) -> f64 {
    let power = 10_f64.powi(exponent(value));
    [5.0, 2.0, 1.0].into_iter().map(|step| step * power).find(|step| *step <= value * 1.001).unwrap_or(power)
}

fn step_above(value: f64) -> f64 {
    let power = 10_f64.powi(exponent(value));
    let steps = [1.0, 2.0, 5.0].into_iter().map(|step| step * power);
    steps.into_iter().find(|step| *step >= value * 0.999).unwrap_or(10.0 * power)
}

/// Formats a number with at most three digits and a suffix for thousands, millions and so on.
pub(crate) fn short(value: f64) -> String {
    let (scaled, suffix) = match value.abs() {
        at if at >= 999.5e6 => (value / 1e9, " G"),
        at if at >= 999.5e3 => (value / 1e6, " M"),
        at if at >= 999.5 => (value / 1e3, " k"),
        _ => (value, ""),
    };
    let digits = match scaled.abs() {
        at if at >= 99.95 || at == 0.0 => 0,
        at if at >= 9.995 => 1,
        at if at >= 0.9995 => 2,
        _ => 3,
    };
    let text = format!("{scaled:.digits$}");
    let text = if digits > 0 { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text}{suffix}")
}

/// The elements of a picture.
struct Svg(String);

impl Svg {
    fn new(width: f64, height: f64) -> Self {
        let mut svg = Svg(format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" height=\"{height:.0}\" \
             font-family=\"system-ui, 'DejaVu Sans', sans-serif\">\n"
        ));
        svg.rect(0.0, 0.0, width, height, "#fff");
        svg
    }

    /// Draws a row with the name of each series in its colour.
    fn legend(&mut self, names: &[&str]) {
        let mut at = 14.0;
        for (index, name) in names.iter().enumerate() {
            self.rect(at, 9.0, 12.0, 12.0, color(index));
            self.text(at + 17.0, 19.0, "start", 12, false, name);
            at += 36.0 + 6.8 * name.chars().count() as f64;
        }
    }

    fn text(&mut self, x: f64, y: f64, anchor: &str, size: u32, is_bold: bool, text: &str) {
        let weight = if is_bold { " font-weight=\"bold\"" } else { "" };
        let _ = writeln!(
            self.0,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" font-size=\"{size}\" fill=\"{INK}\"{weight}>{}</text>",
            escaped(text)
        );
    }

    fn line(&mut self, x1: f64, y1: f64, x2: f64, y2: f64, stroke: &str, width: f64) {
        let _ = writeln!(
            self.0,
            "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke=\"{stroke}\" stroke-width=\"{width}\"/>"
        );
    }

    fn polyline(&mut self, points: &str, stroke: &str) {
        let _ = writeln!(
            self.0,
            "<polyline points=\"{points}\" fill=\"none\" stroke=\"{stroke}\" stroke-width=\"2\"/>"
        );
    }

    fn circle(&mut self, x: f64, y: f64, fill: &str) {
        let _ = writeln!(self.0, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\" fill=\"{fill}\"/>");
    }

    fn rect(&mut self, x: f64, y: f64, width: f64, height: f64, fill: &str) {
        let _ = writeln!(
            self.0,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{fill}\"/>"
        );
    }

    fn finish(mut self) -> String {
        self.0.push_str("</svg>\n");
        self.0
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_numbers_have_at_most_three_digits() {
        let cases = [
            (0.25, "0.25"),
            (1.0, "1"),
            (999.9, "1 k"),
            (12_345.0, "12.3 k"),
            (234_567.0, "235 k"),
            (1e6, "1 M"),
        ];
        cases.into_iter().for_each(|(value, text)| assert_eq!(short(value), text));
    }

    #[test]
    fn a_flat_line_fills_at_least_a_decade() {
        let axis = Axis::around([100.0, 120.0].into_iter(), 10.0);
        assert!(axis.to / axis.from >= 10.0);
        assert!(axis.share(100.0) > 0.3 && axis.share(120.0) < 0.7);
        let ticks = axis.ticks();
        assert!(ticks.len() >= 3, "{ticks:?}");
    }

    #[test]
    fn text_is_escaped_and_a_missing_bar_is_named() {
        let group = BarGroup { name: "a < b".into(), values: vec![Some(1.0), None] };
        let picture = bar_charts(&["x", "y"], &[BarPanel { title: "t".into(), groups: vec![group] }]);
        assert!(picture.contains("a &lt; b") && picture.contains("not measured"));
    }

    #[test]
    fn an_extreme_bar_is_cut() {
        let panel = |values: [f64; 3]| BarPanel {
            title: String::new(),
            groups: vec![BarGroup { name: String::new(), values: values.map(Some).to_vec() }],
        };
        assert_eq!(longest(&panel([1.0, 2.0, 5.0])), 5.0);
        assert_eq!(longest(&panel([1.0, 2.0, 500.0])), 12.0);
    }
}
