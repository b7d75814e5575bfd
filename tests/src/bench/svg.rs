//! Pictures that can be read on light and on dark paper, by themselves and within a page.

use std::fmt::Write as _;

/// A colour by what it stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    /// Behind everything.
    Paper,
    /// Text.
    Ink,
    /// Text of less weight, and axes.
    Faint,
    /// Lines to read values by.
    Grid,
    /// What is shown first.
    Main,
    /// What belongs to it and weighs less.
    Pale,
    /// What is singled out.
    Own,
    /// The same, of less weight.
    OwnPale,
    /// A limit.
    Limit,
}

impl Tone {
    const ALL: [Tone; 9] = [
        Tone::Paper,
        Tone::Ink,
        Tone::Faint,
        Tone::Grid,
        Tone::Main,
        Tone::Pale,
        Tone::Own,
        Tone::OwnPale,
        Tone::Limit,
    ];

    /// Name, colour on light paper, colour on dark paper.
    fn look(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Tone::Paper => ("paper", "#ffffff", "#161b22"),
            Tone::Ink => ("ink", "#1f2328", "#e6edf3"),
            Tone::Faint => ("faint", "#59636e", "#9198a1"),
            Tone::Grid => ("grid", "#e3e6ea", "#30363d"),
            Tone::Main => ("main", "#457b9d", "#5b9bc4"),
            Tone::Pale => ("pale", "#bcd3e2", "#2c4a60"),
            Tone::Own => ("own", "#3a8f5c", "#4fb477"),
            Tone::OwnPale => ("ownpale", "#b9dcc7", "#27533a"),
            Tone::Limit => ("limit", "#c2503b", "#f0806a"),
        }
    }
}

/// Where a text stands at its point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Anchor {
    /// It begins there.
    Start,
    /// Its middle is there.
    Middle,
    /// It ends there.
    End,
}

/// A picture that is being drawn. Writing to a String never fails, so nothing here does.
pub struct Picture {
    text: String,
}

impl Picture {
    /// An empty one with a title, and lines below that.
    #[must_use]
    pub fn new(width: f64, height: f64, title: &str, lines: &[&str]) -> Picture {
        let mut light = String::new();
        let mut dark = String::new();
        for tone in Tone::ALL {
            let (name, on_light, on_dark) = tone.look();
            let _ =
                write!(light, ".ck-{name}{{fill:{on_light}}}.ck-{name}-line{{stroke:{on_light}}}");
            let _ = write!(dark, ".ck-{name}{{fill:{on_dark}}}.ck-{name}-line{{stroke:{on_dark}}}");
        }
        let mut picture = Picture { text: String::new() };
        let _ = writeln!(
            picture.text,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
             height=\"{height}\" font-family=\"sans-serif\" font-size=\"13\" role=\"img\">\n<title>{}</title>\n\
             <style>{light}@media (prefers-color-scheme:dark){{{dark}}}</style>",
            escape(title)
        );
        let _ = writeln!(
            picture.text,
            "<rect width=\"{width}\" height=\"{height}\" rx=\"8\" class=\"ck-paper\"/>"
        );
        picture.large(16.0, 26.0, title);
        for (index, line) in lines.iter().enumerate() {
            picture.text(16.0, 46.0 + 17.0 * index as f64, Anchor::Start, Tone::Faint, line);
        }
        picture
    }

    fn large(&mut self, x: f64, y: f64, text: &str) {
        let text = escape(text);
        let _ = writeln!(
            self.text,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"16\" font-weight=\"600\" class=\"ck-ink\">{text}</text>"
        );
    }

    /// A line of text.
    pub fn text(&mut self, x: f64, y: f64, anchor: Anchor, tone: Tone, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let (name, text) = (tone.look().0, escape(text));
        let _ = writeln!(
            self.text,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" class=\"ck-{name}\">{text}</text>"
        );
    }

    /// A filled rectangle; of no size where that is not a number.
    pub fn bar(&mut self, x: f64, y: f64, width: f64, height: f64, tone: Tone) {
        let (width, height, name) = (length(width), length(height), tone.look().0);
        let _ = writeln!(
            self.text,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" class=\"ck-{name}\"/>"
        );
    }

    /// A line between two points.
    pub fn line(&mut self, from: (f64, f64), to: (f64, f64), tone: Tone, width: f64, dashed: bool) {
        let dash = if dashed { " stroke-dasharray=\"7 4\"" } else { "" };
        let name = tone.look().0;
        let _ = writeln!(
            self.text,
            "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke-width=\"{width}\"{dash} \
             class=\"ck-{name}-line\"/>",
            from.0, from.1, to.0, to.1
        );
    }

    /// A line through points, each marked.
    pub fn path(&mut self, points: &[(f64, f64)], tone: Tone) {
        for pair in points.windows(2) {
            self.line(pair[0], pair[1], tone, 2.0, false);
        }
        let name = tone.look().0;
        for (x, y) in points {
            let _ = writeln!(
                self.text,
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" class=\"ck-{name}\"/>"
            );
        }
    }

    /// A square of a colour, and what it stands for; where the next one may begin.
    pub fn key(&mut self, x: f64, y: f64, tone: Tone, text: &str) -> f64 {
        self.bar(x, y - 11.0, 12.0, 12.0, tone);
        self.text(x + 18.0, y, Anchor::Start, Tone::Ink, text);
        // About as wide as the letters are on average.
        x + 18.0 + 6.9 * text.chars().count() as f64 + 22.0
    }

    /// The whole picture.
    #[must_use]
    pub fn finish(self) -> String {
        self.text + "</svg>\n"
    }
}

fn length(value: f64) -> f64 {
    if value.is_finite() { value.max(0.0) } else { 0.0 }
}

/// Text as it stands in SVG and HTML.
#[must_use]
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// The beginning of a picture on white paper: its title, and what is shown.
#[must_use]
pub fn on_white(width: f64, height: f64, title: &str, shown: &str) -> String {
    let (title, shown) = (escape(title), escape(shown));
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"16\" y=\"24\" font-size=\"16\">{title}</text>\n\
         <text x=\"16\" y=\"44\" fill=\"#666\">{shown}</text>\n"
    )
}

/// A distance between lines of a grid so that at most `most` of them are needed up to `end`: 1, 2 or 5 times a power of ten.
#[must_use]
pub fn step(end: f64, most: f64) -> f64 {
    let least = (end / most).max(1e-9);
    let power = 10_f64.powf(least.log10().floor());
    let factor =
        [1.0, 2.0, 5.0, 10.0].into_iter().find(|factor| factor * power >= least * 0.999_999);
    factor.unwrap_or(10.0) * power
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_round() {
        assert_eq!(step(27.0, 6.0), 5.0);
        assert_eq!(step(10.0, 10.0), 1.0);
        assert!((step(0.9, 5.0) - 0.2).abs() < 1e-9);
    }

    #[test]
    fn a_picture_is_whole() {
        let mut picture = Picture::new(100.0, 50.0, "a < b", &["\"x\" & y"]);
        picture.bar(0.0, 0.0, f64::NAN, -3.0, Tone::Own);
        let text = picture.finish();
        assert!(text.starts_with("<svg ") && text.ends_with("</svg>\n"));
        assert!(text.contains("a &lt; b") && text.contains("&quot;x&quot; &amp; y"));
        assert!(text.contains("width=\"0.0\" height=\"0.0\"") && !text.contains("NaN"));
        assert!(text.contains("prefers-color-scheme:dark"));
    }
}
